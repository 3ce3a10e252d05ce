"""A run's weights as files for others, each read back strictly before it is called written."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fv_core.card import Method, ModelCard, Provenance
from fv_core.errors import TrainError
from fv_core.media.atomic import refusing, unusable
from fv_core.plugins import find_card
from fv_core.plugins.model_folder import ModelFolder, base_of, read_model, write_model
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.training.lora import factor_names, factors, respelled, weights_with_lora, write_factors
from fv_core.training.state import TrainState
from fv_core.weights.store import locate
from fv_core.weights.write import write_component

LORA: Final = "lora.safetensors"
"""Where a run's folder has the factors that it trains, as diffusers names them."""


def write_run_model(
    run: Path, instance: ModelInstance, state: TrainState, method: str, made: Provenance | None = None
) -> Path:
    """Writes the model that a run has come to into its folder, the averaged weights where the run keeps an average."""
    summary = f"{base_of(instance.card)} after {state.step} steps of {method}"
    with averaged(state):
        _write_run_factors(run / LORA, instance)
        return write_model_folder(run / "model", instance, summary=summary, made=made)


def export_lora(run: str, output: Path, *, comfy: bool) -> Path:
    """Writes the LoRA of a run as a file that diffusers, or ComfyUI, and requests read.

    Raises:
        TrainError: FV704 the run has none, or none that ComfyUI reads, FV707 it would not be read back equal.
        PluginError: FV101, there is no such run. RequestError: FV315, the output exists.
    """
    if output.exists():
        raise unusable(output, "exists already", "Choose another name, or remove it.")
    card, file = find_card(run), Path(run) / LORA
    if not file.is_file():
        raise TrainError(
            "FV704",
            name="run",
            value=run,
            rule="has no LoRA: it trained whole layers",
            remedy="Export it with --format diffusers, or train with [lora].",
        )
    with refusing(output):
        tensors = load_file(file)
        write_factors(output, card, respelled(card, tensors) if comfy else tensors, _bare(card, tensors))
    return output


def _write_run_factors(path: Path, instance: ModelInstance) -> None:
    """Writes the factors of all components that have some; nothing where none has."""
    loaded = {name: instance.component(name).module for name in instance.loaded}
    if modules := {name: module for name, module in loaded.items() if factor_names(module)}:
        tensors = factors(instance.card, modules)
        write_factors(path, instance.card, tensors, _bare(instance.card, tensors))


def _bare(card: ModelCard, tensors: Mapping[str, Tensor]) -> dict[str, nn.Module]:
    """The modules of a card that factors are of, without weights and without LoRA."""
    sketch = ModelInstance(
        card, device=torch.device("cpu"), dtype=torch.float32, folder=None, offload=Offload.NONE
    )
    return {
        name: sketch.architecture(name)
        for name, spec in card.components.items()
        if spec.adapters and any(key.startswith(spec.adapters.prefixes[0]) for key in tensors)
    }


def export_model(run: str, output: Path, *, dtype: str) -> Path:
    """Writes the model of a run, or of another folder that is one, as a folder of its own.

    Args:
        dtype: torch's name of what tensors are written as.

    Raises:
        TrainError: FV707, it would not be read back equal. PluginError: FV101, there is no such run or model.
        RequestError: FV315, the output exists.
    """
    if output.exists():
        raise unusable(output, "exists already", "Choose another name, or remove it.")
    card = find_card(run)
    instance = ModelInstance(
        card, device=torch.device("cpu"), dtype=torch.float32, folder=locate(card, None), offload=Offload.NONE
    )
    with closing(instance), refusing(output):
        return write_model_folder(output, instance, summary=card.summary, dtype=getattr(torch, dtype))


def write_model_folder(
    folder: Path,
    instance: ModelInstance,
    *,
    summary: str,
    dtype: torch.dtype = torch.float32,
    made: Provenance | None = None,
) -> Path:
    """Writes an instance as a folder that diffusers reads, and that is a model (`fv generate --model FOLDER`).

    What was there is replaced once the new one is whole and has been read back equal.

    Args:
        made: the training that the weights came from; None: as the card tells.

    Raises:
        TrainError: FV707, it is not read back as it was written.
    """
    card = instance.card
    _require_places(card)
    temporary = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}")
    temporary.mkdir(parents=True)
    try:
        for component_id, spec in card.components.items():
            component = instance.component(component_id)
            weights = temporary / spec.subfolders[0]
            write_component(
                weights, component.module, weights_with_lora(component.module), spec.config, dtype
            )
            for companion in spec.subfolders[1:]:
                _copy_companion(companion, component, instance.folder, temporary)
        precision = str(dtype).removeprefix("torch.")
        recipe = replace(
            card.recipe, method=_method(card), precision=precision, made=made or card.recipe.made
        )
        write_model(temporary, ModelFolder(base=base_of(card), recipe=recipe, summary=summary))
        check_model_folder(temporary, instance, dtype)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def check_model_folder(folder: Path, instance: ModelInstance, dtype: torch.dtype) -> None:
    """Raises:
    TrainError: FV707, a tensor comes back with another value. WeightsError: FV254, with another name or shape.
    """
    card = read_model(folder, lambda base: instance.card)
    again = ModelInstance(
        card, device=instance.device, dtype=instance.dtype, folder=folder, offload=Offload.NONE
    )
    with closing(again):
        for component_id in card.components:
            then = weights_with_lora(instance.component(component_id).module)
            now = weights_with_lora(again.component(component_id).module)
            for name, tensor in then.items():
                if not torch.equal(tensor.to(dtype).to(tensor.dtype), now[name].to(tensor.dtype)):
                    raise TrainError(
                        "FV707",
                        name=f"{component_id}/{name}",
                        rule="comes back with other values than were written",
                        remedy="Nothing was left of what was written; report it.",
                    )


@contextmanager
def averaged(state: TrainState) -> Iterator[None]:
    """While the block runs the model's weights are the averages, where there are any; then the same bits as before."""
    kept: list[tuple[nn.Parameter, Tensor]] = []
    with torch.no_grad():
        for role in state.roles.values():
            for parameter, average in zip(role.values(), role.average or (), strict=False):
                kept.append((parameter, parameter.detach().clone()))
                parameter.copy_(average)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in kept:
                parameter.copy_(value)


def _require_places(card: ModelCard) -> None:
    """Raises:
    TrainError: FV707, a component has no folder of its own for its weights.
    """
    places = [spec.subfolders[:1] for spec in card.components.values()]
    for component_id, spec in card.components.items():
        if spec.files or not spec.subfolders or places.count(spec.subfolders[:1]) > 1:
            raise TrainError(
                "FV707",
                name=f"component {component_id} of {card.model_id}",
                rule="has no folder of its own, so its weights cannot be written as diffusers has them",
                remedy="Go on from the run's checkpoints, which hold all that was trained.",
            )


def _method(card: ModelCard) -> Method:
    return Method.PRETRAIN if card.recipe.method is Method.UNTRAINED else Method.FINETUNE


def _copy_companion(name: str, component: Any, folder: Path | None, into: Path) -> None:
    """A folder that a component reads beside its weights: as it was, or as the tokenizer that the plugin brought."""
    if folder is not None:
        shutil.copytree(folder / name, into / name)
    elif hasattr(component, "tokenizer"):
        component.tokenizer.save_pretrained(into / name)
    else:
        raise TrainError(
            "FV707",
            name=f"folder {name}",
            rule=f"is read by a {type(component).__name__} whose plugin brings it, and cannot be written",
            remedy="Train from a folder of weights, which has it.",
        )
