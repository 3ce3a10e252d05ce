"""A run's model as a plugin: a distribution whose wheel brings the weights, and whose card is its base's with these."""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import torch
from packaging.version import Version

from fv_core import __version__
from fv_core.card import ModelCard, derive
from fv_core.errors import TrainError
from fv_core.hookspecs import PLUGIN_API
from fv_core.media.atomic import refusing, unusable
from fv_core.plugins import PluginRecord, find_card, record_of
from fv_core.plugins.model_folder import base_of, read_model
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.training.export import write_model_folder
from fv_core.weights.store import locate

WEIGHTS: Final = "weights"
"""The folder of the package that has them, with the file that says how they were made."""

_TELL_CARD: Final = (
    "import importlib, sys; sys.path.insert(0, sys.argv[1]); "
    "sys.stdout.write(importlib.import_module(sys.argv[2] + '.card').CARD.to_json())"
)


def export_plugin(run: str, output: Path, *, name: str, dtype: str) -> Path:
    """Writes the model of a run, or of another folder that is one, as the source of a plugin that brings it.

    Args:
        name: of the plugin, so that its model is `<name>/<the base's>`.
        dtype: torch's name of what tensors are written as.

    Raises:
        TrainError: FV704 the base is of no installed plugin, FV707 it would not be read back equal.
        PluginError: FV101, there is no such run or model. RequestError: FV315, the output exists.
    """
    if output.exists():
        raise unusable(output, "exists already", "Choose another name, or remove it.")
    card = find_card(run)
    base = find_card(base_of(card))
    owner = record_of(base)
    if owner is None:
        raise TrainError(
            "FV704",
            name="run",
            value=run,
            rule=f"is of {base.model_id}, which no installed plugin brings, so none can be named as required",
            remedy="Export it with --format diffusers.",
        )
    instance = ModelInstance(
        card, device=torch.device("cpu"), dtype=torch.float32, folder=locate(card, None), offload=Offload.NONE
    )
    package = f"fv_{re.sub(r'[.-]', '_', name)}"
    temporary = output.with_name(f".{output.name}-{secrets.token_hex(4)}")
    with closing(instance), refusing(output):
        try:
            weights = temporary / package / WEIGHTS
            write_model_folder(weights, instance, summary=card.summary, dtype=getattr(torch, dtype))
            told = derive(
                read_model(weights, lambda base_id: base),
                model_id=f"{name}/{base.model_id.partition('/')[2]}",
                weights=f"{package}:{WEIGHTS}",
            )
            for path, text in _files(name, package, told, base, owner).items():
                (temporary / path).write_text(text)
            _check_card(temporary, package, told)
            temporary.rename(output)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return output


def _check_card(folder: Path, package: str, told: ModelCard) -> None:
    """Reads the card as another process will, which has the folder and nothing of this one.

    Raises:
        TrainError: FV707, it is another one, or none.
    """
    command = [sys.executable, "-c", _TELL_CARD, str(folder), package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or done.stdout != told.to_json():
        *_, why = ["it comes back changed", *done.stderr.strip().splitlines()]
        raise TrainError(
            "FV707",
            name=f"card of the package {package}",
            rule=f"is not the one that was written: {why}",
            remedy="Nothing was left of what was written; report it.",
        )


def _files(
    name: str, package: str, card: ModelCard, base: ModelCard, owner: PluginRecord
) -> Mapping[str, str]:
    """The text of the distribution by path."""
    facts = {
        "@NAME@": name,
        "@PACKAGE@": package,
        "@MODEL@": card.model_id,
        "@BASE@": base.model_id,
        "@BASE_PACKAGE@": owner.module,
        "@BASE_DIST@": f"{owner.dist}{_compatible(owner.version)}",
        "@CORE@": f"fv-core{_compatible(__version__)}",
        "@API@": str(PLUGIN_API),
        "@SUMMARY@": card.summary,
        "@RECIPE@": "\n".join(f"| {fact} | {value} |" for fact, value in _recipe_rows(card)),
    }
    texts = {
        "pyproject.toml": _PYPROJECT,
        "README.md": _README,
        f"{package}/__init__.py": _INIT,
        f"{package}/card.py": _CARD,
        f"{package}/py.typed": "",
    }
    for mark, fact in facts.items():
        texts = {path: text.replace(mark, fact) for path, text in texts.items()}
    return texts


def _recipe_rows(card: ModelCard) -> list[tuple[str, object]]:
    """What a README says of how the weights were made and are to be sampled."""
    recipe = card.recipe
    made = recipe.made
    training: list[tuple[str, object]] = (
        []
        if made is None
        else [
            ("parents", "; ".join(made.parents) or "none"),
            ("data", f"{made.data}, digest {made.data_digest}"),
            ("trained", f"{made.steps} steps, seed {made.seed}"),
            ("command", f"`{made.command}`" if made.command else "none: a program began it"),
        ]
    )
    return [
        *training,
        ("method", recipe.method),
        ("loop", recipe.assumes_loop),
        ("steps", recipe.steps),
        ("shift", recipe.shift),
        ("guidance", recipe.guidance),
        ("precision", recipe.precision),
    ]


def _compatible(version: str) -> str:
    """The requirement of this release and those after it that promise to be compatible."""
    release = Version(version)
    return f"~={release.major}.{release.minor}.{release.micro}"


_PYPROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fv-@NAME@"
version = "0.1.0"
description = "@MODEL@ for fv: @BASE@ with weights of its own."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["@BASE_DIST@", "@CORE@"]

[project.entry-points.fv]
@NAME@ = "@PACKAGE@"

[tool.hatch.build]
ignore-vcs = true  # a repository around this folder may ignore weights, and the wheel needs them

[tool.hatch.build.targets.wheel]
packages = ["@PACKAGE@"]
"""

_README: Final = """\
# fv-@NAME@

`@MODEL@` for fv: `@BASE@` with weights of its own, which this package brings.
@SUMMARY@.

```console
$ pip install .
$ fv generate "a prompt" --model @MODEL@
```

| Recipe | |
|---|---|
@RECIPE@

The whole recipe is in `@PACKAGE@/weights/model.json`. Written by `fv export --format plugin`; before you publish it,
state a license here and in `pyproject.toml`, and what the model must not be used for.
"""

_INIT: Final = '''\
"""The plugin as fv sees it: the API it was written for and its hook. Imports no torch, and neither does `card`."""

from __future__ import annotations

from collections.abc import Iterable

from fv_core import ModelCard, hookimpl

fv_api = @API@


@hookimpl
def fv_cards() -> Iterable[ModelCard]:
    """The card of this plugin; its id begins with the name of its entry point."""
    from @PACKAGE@.card import CARD  # kept out of the import of the package, which discovery may repeat

    return (CARD,)
'''

_CARD: Final = '''\
"""The card: @BASE@ with the weights of this package, and the recipe that they were made by."""

from __future__ import annotations

import json
from importlib import resources
from typing import Final

import @BASE_PACKAGE@
from fv_core import ModelCard, RecipeSpec, codec, derive

_BASE: Final = next(card for card in @BASE_PACKAGE@.fv_cards() if card.model_id == "@BASE@")
_TOLD: Final = json.loads((resources.files("@PACKAGE@") / "weights" / "model.json").read_text())

CARD: Final[ModelCard] = derive(
    _BASE,
    model_id="@MODEL@",
    summary=_TOLD["summary"],
    recipe=codec.decode(RecipeSpec, _TOLD["recipe"]),
    checkpoint=None,
    weights="@PACKAGE@:weights",
)
'''
