"""LoRA through peft: low-rank factors beside the layers of a module, which alone are trained (Hu et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fv_core.adapters.binding import Target, bind
from fv_core.adapters.files import AdapterFile
from fv_core.card import AdapterNames, ModelCard
from fv_core.errors import TrainError
from fv_core.loop.keyed import DrawKey, keyed_uniform
from fv_core.training.config import LoraTable
from fv_core.weights.write import weights_of

_ADAPTER: Final = "default"
_FACTORS: Final = (f".lora_A.{_ADAPTER}.weight", f".lora_B.{_ADAPTER}.weight")
COMFY: Final = "diffusion_model."


def attach(component_id: str, module: nn.Module, table: LoraTable, seed: int) -> None:
    """Puts factors beside the layers that the table names; the second one is 0, so nothing is changed yet.

    Raises:
        TrainError: FV704, no layer has one of the names. FV706, peft is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise TrainError(
            "FV706",
            name="[lora]",
            rule="needs peft, which is not installed",
            remedy="pip install 'fv-core[train]'",
        ) from error
    names = _chosen(component_id, module, table.targets)
    config = LoraConfig(r=table.rank, lora_alpha=table.alpha or table.rank, target_modules=names)
    with torch.random.fork_rng(devices=[]):  # peft draws from the global generator
        torch.manual_seed(int(keyed_uniform(DrawKey(seed=seed, purpose=f"lora {component_id}")) * 2**53))
        inject_adapter_in_model(config, module, adapter_name=_ADAPTER)


def factor_names(module: nn.Module) -> list[str]:
    """The parameters of a module that are factors, by name: none of one without LoRA."""
    return [name for name, _ in module.named_parameters() if name.endswith(_FACTORS)]


def weights_with_lora(module: nn.Module) -> dict[str, Tensor]:
    """The tensors that files of the module hold, the products of its factors added: the module without LoRA."""
    merged = {}
    for name, tensor in weights_of(module).items():
        if name.endswith(_FACTORS):
            continue
        layer, inside, leaf = name.rpartition(".base_layer.")
        if inside and leaf == "weight":
            wrapped: Any = module.get_submodule(layer)
            tensor = tensor + wrapped.get_delta_weight(_ADAPTER).detach()
        merged[f"{layer}.{leaf}" if inside else name] = tensor
    return merged


def factors(card: ModelCard, modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """The factors as files of LoRA have them, by diffusers' names.

    alpha / rank is multiplied into the second factor, since who finds no alpha in a file takes 1.

    Raises:
        TrainError: FV704, the card has no names for the layers of a component.
    """
    tensors = {}
    for component_id, module in modules.items():
        prefix = _names(card, component_id).prefixes[0]
        parameters = dict(module.named_parameters())
        for name in factor_names(module):
            layer, _, factor = name.removesuffix(f".{_ADAPTER}.weight").rpartition(".")
            wrapped: Any = module.get_submodule(layer)
            scale = wrapped.scaling[_ADAPTER] if factor == "lora_B" else 1.0
            tensors[f"{prefix}{layer}.{factor}.weight"] = (parameters[name].detach() * scale).contiguous()
    return tensors


def respelled(card: ModelCard, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Factors under the names that ComfyUI reads: those of the model's own release.

    Raises:
        TrainError: FV704, the card has no such names for a component.
    """
    spelled = {}
    for name, tensor in tensors.items():
        names, layer = next(
            (own, name.removeprefix(own.prefixes[0]))
            for own in (spec.adapters for spec in card.components.values())
            if own is not None and name.startswith(own.prefixes[0])
        )
        if COMFY not in names.prefixes:
            raise _nameless(name.partition(".")[0], card, " that ComfyUI reads")
        dotted = f".{layer}"
        for own, original in names.original.items():
            dotted = dotted.replace(f".{own}.", f".{original}.")
        spelled[f"{COMFY}{dotted.removeprefix('.')}"] = tensor
    return spelled


def write_factors(
    path: Path, card: ModelCard, tensors: Mapping[str, Tensor], modules: Mapping[str, nn.Module]
) -> None:
    """Writes a file of LoRA and reads it back as a request would bind it.

    Args:
        modules: of the components without LoRA, on any device.

    Raises:
        TrainError: FV707, not every layer is found again, or a tensor comes back otherwise.
        RequestError: FV322 or FV323, the file does not bind.
    """
    save_file(dict(tensors), path, metadata={"format": "pt"})
    targets = {name: Target(module=module, names=_names(card, name)) for name, module in modules.items()}
    bound = bind(AdapterFile(path=str(path), tensors=path, config=None), targets)
    again = load_file(path)
    equal = again.keys() == tensors.keys() and all(
        torch.equal(again[name], one) for name, one in tensors.items()
    )
    if 2 * len(bound.layers) != len(tensors) or not equal:
        path.unlink()
        raise TrainError(
            "FV707",
            name=str(path),
            value=f"{len(bound.layers)} layers",
            rule=f"is not read back as the {len(tensors)} factors that were written",
            remedy="Nothing was left of what was written; report it.",
        )


def _chosen(component_id: str, module: nn.Module, targets: Sequence[str]) -> list[str]:
    """The linear layers whose names end with one of `targets`; none named: those of the module's repeated blocks."""
    linear = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if targets:
        chosen = [name for name in linear if any(f".{name}".endswith(f".{target}") for target in targets)]
    else:
        chosen = [name for name in linear if any(part.isdigit() for part in name.split("."))] or linear
    if not chosen:
        raise TrainError(
            "FV704",
            name="lora.targets",
            value=", ".join(targets),
            rule=f"names no linear layer of {component_id}",
            legal=", ".join(linear[:8]),
            remedy="Name ends of layers, or leave it out for those of all blocks.",
        )
    return chosen


def _names(card: ModelCard, component_id: str) -> AdapterNames:
    names = card.components[component_id].adapters
    if names is None or not names.prefixes:
        raise _nameless(component_id, card, "")
    return names


def _nameless(component: str, card: ModelCard, of_whom: str) -> TrainError:
    return TrainError(
        "FV704",
        name=f"component {component} of {card.model_id}",
        rule=f"has no names for its layers in files of LoRA{of_whom}",
        remedy="Train others, or state ComponentSpec.adapters.",
    )
