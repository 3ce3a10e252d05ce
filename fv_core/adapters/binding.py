"""Binds the layers of an adapter's file to those of a model, all of them or none. Reads headers and alphas alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeAlias

from safetensors import SafetensorError, safe_open
from torch import nn

from fv_core.adapters.alpha import Config, Strength, configs_of, needs_config
from fv_core.adapters.faults import listed, unbound, unreadable
from fv_core.adapters.files import AdapterFile
from fv_core.adapters.keys import LayerKeys, layers_of
from fv_core.card import AdapterNames
from fv_core.weights.safetensors_header import TensorHeader

Layer: TypeAlias = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d

_ANYWHERE: Final = ("", "base_model.model.")
"""Prefixes that name no component: a module's own names, and those that peft saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A component that takes adapters: its module, whose weights may lie nowhere yet, and how files name its layers."""

    module: nn.Module
    names: AdapterNames


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundLayer:
    """One layer of a component, and what a file holds for it. `bytes` of both factors in the type of its weight."""

    component: str
    layer: str
    keys: LayerKeys
    strength: Strength
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """An adapter's file on a model: every layer of the file is one layer of the model."""

    file: AdapterFile
    layers: tuple[BoundLayer, ...]
    alpha_stated: bool

    def counts(self) -> dict[str, int]:
        """How many layers it alters, by component."""
        return dict(sorted(Counter(layer.component for layer in self.layers).items()))

    def bytes(self, component: str | None = None) -> int:
        """Of all factors where they are applied, of one component where it is given."""
        return sum(layer.bytes for layer in self.layers if component in (None, layer.component))


def bind(file: AdapterFile, targets: Mapping[str, Target]) -> Binding:
    """Raises:
    RequestError: FV322 the file is none of a LoRA; FV323 a layer is in no component or in several, or is not of its
        shape.
    """
    headers = file.headers()
    found = layers_of(file.path, headers)
    spellings = {component: _spellings(target) for component, target in targets.items()}
    places = {keys.layer: _places(keys.layer, targets, spellings) for keys in found}
    _check_places(file, places, spellings)
    alphas = _alphas(file, found)
    configs = configs_of(file)
    layers = []
    for keys in found:
        ((component, layer),) = places[keys.layer]
        module = targets[component].module.get_submodule(layer)
        assert isinstance(module, Layer)
        rank = _rank(file, keys, headers, module)
        layers.append(
            BoundLayer(
                component=component,
                layer=layer,
                keys=keys,
                strength=_strength(file, keys.layer, rank, alphas.get(keys.layer), configs),
                bytes=sum(math.prod(headers[name].shape) for name in (keys.down, keys.up))
                * module.weight.itemsize,
            )
        )
    return Binding(file=file, layers=tuple(layers), alpha_stated=bool(alphas or configs))


def _spellings(target: Target) -> dict[str, str]:
    """Every way to name a layer that can be altered, and the layer's own name."""
    found = {name: name for name, module in target.module.named_modules() if isinstance(module, Layer)}
    for name in tuple(found):
        spelled = f".{name}."
        for own, original in target.names.original.items():
            spelled = spelled.replace(f".{own}.", f".{original}.")
        found.setdefault(spelled.strip("."), name)
    return found


def _places(
    layer: str, targets: Mapping[str, Target], spellings: Mapping[str, Mapping[str, str]]
) -> list[tuple[str, str]]:
    """Where a layer of a file could be: components with the layers' own names."""
    found: dict[tuple[str, str], None] = {}
    for component, target in targets.items():
        for prefix in (*target.names.prefixes, *_ANYWHERE):
            if layer.startswith(prefix):
                name, known = layer.removeprefix(prefix), spellings[component]
                if prefix.endswith("_"):
                    known = {spelling.replace(".", "_"): own for spelling, own in known.items()}
                if name in known:
                    found[component, known[name]] = None
    return list(found)


def _check_places(
    file: AdapterFile,
    places: Mapping[str, Sequence[tuple[str, str]]],
    spellings: Mapping[str, Mapping[str, str]],
) -> None:
    nowhere = [layer for layer, found in places.items() if not found]
    if nowhere:
        known = [spelling for component in spellings.values() for spelling in component]
        near = get_close_matches(nowhere[0], known, n=3, cutoff=0.3)
        raise unbound(
            file.path,
            f"does not fit: {len(nowhere)} of its {len(places)} layers are none of the model: {listed(nowhere)}",
            f"Use an adapter of this model; its names that come nearest to the first are {', '.join(near) or 'none'}.",
        )
    if several := [layer for layer, found in places.items() if len(found) > 1]:
        components = ", ".join(component for component, _ in places[several[0]])
        raise unbound(
            file.path,
            f"is ambiguous: these names are layers of {components}: {listed(several)}",
            "Save it with the name of its component before each key, such as `transformer.`.",
        )
    taken = Counter(found[0] for found in places.values())
    if twice := [layer for layer, found in places.items() if taken[found[0]] > 1]:
        raise unbound(
            file.path,
            f"names a layer twice: {listed(twice)}",
            "Save it with one kind of names.",
        )


def _rank(file: AdapterFile, keys: LayerKeys, headers: Mapping[str, TensorHeader], module: Layer) -> int:
    """The rank of a layer's factors, which are of its shape.

    Raises:
        RequestError: FV323.
    """
    down, up = headers[keys.down].shape, headers[keys.up].shape
    for fault in _misfits(keys, headers, module):
        raise unbound(
            file.path,
            f"does not fit layer {keys.layer}: factors {list(down)} and {list(up)}, {fault}",
            "Use an adapter of this very model and size.",
        )
    return down[0]


def _misfits(keys: LayerKeys, headers: Mapping[str, TensorHeader], module: Layer) -> Iterator[str]:
    down, up = headers[keys.down], headers[keys.up]
    wide, high = _sides(module)
    if not (down.floating and up.floating):
        yield f"of {down.dtype} and {up.dtype}, which are no plain numbers"
    if not module.weight.is_floating_point() or module.weight.itemsize < 2:
        yield f"and the layer is quantised ({module.weight.dtype}), which takes no adapters"
    if not isinstance(module, nn.Linear) and (module.groups != 1 or module.padding_mode != "zeros"):
        yield "and the layer is a convolution in groups or without zero padding, which takes no adapters"
    if not down.shape or not up.shape or down.shape[1:] != wide or up.shape[:1] != high:
        yield f"a layer of weight {list(module.weight.shape)} has [rank, {_told(wide)}] and [{_told(high)}, rank]"
    elif up.shape[1:] != (down.shape[0],) + (1,) * (len(wide) - 1) or not down.shape[0]:
        yield "whose ranks differ"


def _sides(module: Layer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = tuple(module.weight.shape)
    return shape[1:], shape[:1]


def _told(sides: Sequence[int]) -> str:
    return ", ".join(map(str, sides))


def _alphas(file: AdapterFile, found: Sequence[LayerKeys]) -> dict[str, float]:
    """Alphas that are tensors, by layer."""
    alphas = {}
    try:
        with safe_open(file.tensors, framework="pt") as tensors:
            for keys in found:
                if keys.alpha is not None:
                    value = tensors.get_tensor(keys.alpha)
                    if value.numel() != 1 or not math.isfinite(value.item()):
                        raise unreadable(file.path, f"has an alpha that is no finite number: {keys.alpha}")
                    alphas[keys.layer] = float(value.item())
    except (SafetensorError, OSError) as error:
        raise unreadable(file.path, f"cannot be read: {error}") from error
    return alphas


def _strength(
    file: AdapterFile, layer: str, rank: int, alpha: float | None, configs: Sequence[Config]
) -> Strength:
    config = next((one for one in configs if layer.startswith(one.prefix)), None)
    if alpha is not None and config is not None:
        raise unreadable(file.path, f"says alpha twice for {layer}: in a tensor and in a config")
    if config is not None:
        return config.strength(layer.removeprefix(config.prefix), rank)
    if configs:
        raise unreadable(file.path, f"has a config that says nothing of layer {layer}")
    if alpha is None and needs_config(layer):
        raise unreadable(
            file.path,
            "has the names of peft and no adapter_config.json beside it, without which its strength is unknown",
            "Give the folder that peft saved.",
        )
    return Strength(alpha=rank if alpha is None else alpha, rank=rank)
