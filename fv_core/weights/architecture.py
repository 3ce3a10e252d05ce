"""Whether a weights folder is of the architecture that its card's component states: config by key, then the count."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from torch import nn

from fv_core.card import ComponentSpec
from fv_core.errors import WeightsError


def agreed_config(
    component: str, spec: ComponentSpec, path: Path, stored: Mapping[str, object]
) -> dict[str, object]:
    """What the folder's config file and the card say together; a key that only one of them gives is taken from it.

    Args:
        component: its id in the card.
        path: the config file that holds `stored`.

    Raises:
        WeightsError: FV254, a key that the card gives has another value in the file.
    """
    for key, wanted in spec.config.items():
        if not _same(have := stored.get(key, wanted), wanted):
            raise _other(component, path, key, have, wanted)
    return {**spec.config, **stored}


def check_count(
    component: str, spec: ComponentSpec, source: Path, module: nn.Module, aliases: Collection[str]
) -> None:
    """Compares the number of parameters with the card's, where the card states one; tied ones count once.

    Raises:
        WeightsError: FV254.
    """
    own = {
        id(parameter): parameter.numel()
        for name, parameter in module.named_parameters(remove_duplicate=False)
        if name not in aliases
    }
    if spec.parameters and sum(own.values()) != spec.parameters:
        raise _other(component, source, "number of parameters", sum(own.values()), spec.parameters)


def _other(component: str, source: Path, key: str, have: object, wanted: object) -> WeightsError:
    return WeightsError(
        "FV254",
        name=f"component {component}: {key} of {source}",
        value=have,
        rule="is not what the card says",
        legal=repr(wanted),
        remedy="Use the checkpoint that the card was made for, or derive a card whose component states this one.",
    )


def _same(one: object, other: object) -> bool:
    """Equality of plain JSON, in which a tuple is a list and true is no number."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return isinstance(one, bool) == isinstance(other, bool) and one == other
