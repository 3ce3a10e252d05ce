"""What computes a card's results, as one hash: an editable plugin changes without its version. Loads no torch."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import fv_core
from fv_core.card import ModelCard

SHIPPED: Final = Path("assets") / "certificates"
"""Where a plugin's package keeps its ledger."""

COMPUTING: Final = (
    "cache", "card", "extend", "loop", "media", "program", "request", "runtime", "weights",
)  # fmt: skip
"""The packages of core that can change what a run comes to, from the reading of its inputs to its frames."""

_CORE = "fv_core"


def code_hash(card: ModelCard) -> str:
    """sha256 over names and bytes of core's computing packages and of every package that the card names code of.

    Of those packages all files count, what they ship beside their code included; left out are their certificates, what
    Python compiled, and tensors, which the hash of the weights binds once they are loaded.
    """
    whole = hashlib.sha256()
    for name, path in sorted(_files(card).items()):
        whole.update(f"{name}={hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


def _files(card: ModelCard) -> dict[str, Path]:
    """By name: the path inside the folder that the package lies in."""
    core = Path(fv_core.__path__[0])
    found = {path: core.parent for package in COMPUTING for path in (core / package).rglob("*.py")}
    for module in _modules(card):
        top, _, rest = module.partition(".")
        if top == _CORE:
            inside = core.joinpath(*rest.split("."))
            found |= {
                path: core.parent
                for path in (inside.with_suffix(".py"), inside / "__init__.py")
                if path.is_file()
            }
        else:
            found |= dict(_package(top))
    return {path.relative_to(root).as_posix(): path for path, root in found.items()}


def _modules(card: ModelCard) -> Iterator[str]:
    """Every module that the card names."""
    claim = card.parity
    references = [
        *(spec.load for spec in card.components.values()),
        *(spec.loop for spec in card.loops.values()),
        *(() if claim is None else (claim.runner, claim.probes)),
    ]
    return (reference.partition(":")[0] for reference in references if reference)


def _package(top: str) -> Iterator[tuple[Path, Path]]:
    """The files of a top-level package or module, each with the folder that it lies in."""
    for root in _roots(top):
        if root.is_file():
            yield root, root.parent
        for path in root.rglob("*"):
            if path.is_file() and _counts(path.relative_to(root)):
                yield path, root.parent


def _roots(top: str) -> list[Path]:
    try:
        spec = find_spec(top)
    except ValueError:  # a program that was started by its path has no spec
        spec = None
    if spec is not None and spec.submodule_search_locations:
        return [Path(folder) for folder in spec.submodule_search_locations]
    origin = getattr(sys.modules.get(top), "__file__", None) if spec is None else spec.origin
    return [Path(origin)] if origin and Path(origin).is_file() else []


def _counts(path: Path) -> bool:
    return (
        "__pycache__" not in path.parts
        and path.suffix not in (".pyc", ".safetensors")
        and SHIPPED not in path.parents
    )
