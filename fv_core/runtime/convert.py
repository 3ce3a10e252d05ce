"""Makes the safetensors folder that a card loads of a pickle that its weights were published as.

A step of its own, never part of a run: a pickle is opened here alone, and only as tensors (`weights_only`).
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from fv_core.card import ComponentSpec, ModelCard
from fv_core.errors import FvError, RequestError, WeightsError
from fv_core.media.atomic import refusing
from fv_core.plugins.reference import resolve_reference
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.weights.layout import SOURCES, missing
from fv_core.weights.store import needed_folders

_FILE = next(name for name in SOURCES if name.endswith(".safetensors"))


def convertible(card: ModelCard) -> tuple[str, ...]:
    """Ids of the components that name a converter."""
    return tuple(name for name, spec in card.components.items() if spec.convert)


def convert(card: ModelCard, file: Path, out: Path, *, others: Path | None = None) -> Path:
    """Writes folder `out`, whole or not at all, with the components of `card` that `file` holds.

    Args:
        others: a folder of weights whose other subfolders the card needs too; they are linked.

    Raises:
        WeightsError: FV258 `file` is no pickle of tensors, FV252 something is missing, FV254 the tensors are not
            those of the card's architecture.
        RequestError: FV258 the card has no converter, FV315 `out` exists or cannot be written.
        ResourceError: FV403, the disk is full.
    """
    ids = convertible(card)
    if not ids:
        raise _no_converter(card)
    with refusing(out):
        if out.exists():
            raise FileExistsError(str(out))
    contents = _read(file)
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with refusing(out):
            partial.mkdir()
        for name in ids:
            spec = card.components[name]
            change = resolve_reference(spec.convert, owner=f"{card.model_id} component {name}")
            with refusing(out), _of_another_form(file):
                _write(partial / spec.subfolders[0], spec, change(contents))
        if others is not None:
            _link(partial, others, [name for name in needed_folders(card) if not (partial / name).exists()])
        _check(card, partial, ids)
        with refusing(out):
            os.replace(partial, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return out


def _read(file: Path) -> object:
    if not file.is_file():
        rule = "it is not a file" if file.exists() else "the file is missing"
        raise missing(file, rule, remedy="Give the path of the file as it was published.")
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except Exception as error:  # whatever a damaged or hostile pickle makes the reader raise
        raise WeightsError(
            "FV258",
            name=str(file),
            rule="is no pickle of tensors alone",
            remedy="Check its digest against the publisher's. fv never runs the code that a pickle can hold.",
        ) from error


@contextmanager
def _of_another_form(file: Path) -> Iterator[None]:
    """Whatever a converter, or the writer, raises on contents that it was not made for."""
    try:
        yield
    except (FvError, OSError):
        raise
    except Exception as error:
        raise WeightsError(
            "FV258",
            name=str(file),
            rule=f"holds something else than the converter knows ({type(error).__name__})",
            remedy="Give the file as it was published; FV_DEBUG=1 shows the traceback.",
        ) from error


def _write(folder: Path, spec: ComponentSpec, tensors: Mapping[str, Tensor]) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(dict(spec.config), indent=2) + "\n")
    own = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    save_file(own, folder / _FILE, metadata={"format": "pt"})


def _link(folder: Path, others: Path, names: Sequence[str]) -> None:
    for name in names:
        if not (others / name).is_dir():
            raise missing(others, f"the subfolder {name} is missing")
        with refusing(folder):
            (folder / name).symlink_to((others / name).resolve(), target_is_directory=True)


def _check(card: ModelCard, folder: Path, ids: Sequence[str]) -> None:
    """Every name and shape, on the headers of what was written."""
    instance = ModelInstance(
        card, device=torch.device("cpu"), dtype=torch.float32, folder=folder, offload=Offload.NONE
    )
    instance.check(ids)


def _no_converter(card: ModelCard) -> RequestError:
    return RequestError(
        "FV258",
        name=f"model {card.model_id}",
        rule="names no converter; its weights are published as safetensors, or ship with its plugin",
        remedy="`fv weights pull ID` fetches published weights.",
    )
