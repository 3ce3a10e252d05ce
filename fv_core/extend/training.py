"""What plugins bring to training: methods, and rewards that judge clips. Records; the classes are loaded when used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from fv_core.card.names import MODEL_ID
from fv_core.card.value_types import value_types

_REFERENCE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMethodSpec:
    """A way of training, as it is offered.

    Args:
        id: `<plugin>/<name>`; bare ids are fv's own.
        loops: first words of the semantics of loops that it trains ("flow" of "flow.unipc2.cfg/v1"): the model has to
            have one of them.
        roles: the parts that it trains, each with an optimizer of its own.
        factory: `"module:attr"` of its class (`fv_core.training.contract.Method`).
        summary: what it does, in a line.
    """

    id: str
    loops: tuple[str, ...]
    roles: tuple[str, ...]
    factory: str
    summary: str

    def faults(self) -> tuple[str, ...]:
        """What would keep it from ever running, a clause each; () for a sound record."""
        return _faults(self, {"loops": self.loops, "roles": self.roles})


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardSpec:
    """What judges clips, as it is offered.

    Args:
        id: `<plugin>/<name>`; bare ids are fv's own.
        artifacts: what it judges: "video" is all there is by now.
        factory: `"module:attr"` of its class (`fv_core.training.contract.Reward`).
        summary: what it judges, in a line.
    """

    id: str
    artifacts: tuple[str, ...]
    factory: str
    summary: str

    def faults(self) -> tuple[str, ...]:
        """What would keep it from ever running, a clause each; () for a sound record."""
        return _faults(self, {"artifacts": self.artifacts})


def _faults(spec: TrainingMethodSpec | RewardSpec, some: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    if wrong := list(value_types(spec)):
        return tuple(f"{error.name} {error.value!r} {error.rule}" for error in wrong)
    found = [f"it names no {name}" for name, values in some.items() if not values]
    if not MODEL_ID.fullmatch(spec.id):
        found.append("its id is not <plugin>/<name>, each of a-z and 0-9 in words that one of . _ - joins")
    if not _REFERENCE.fullmatch(spec.factory):
        found.append(f"its factory {spec.factory!r} is not module:attr")
    return tuple(found)
