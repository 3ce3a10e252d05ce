"""The samplers by name: what a flow loop needs of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from fv_core.loop.samplers.euler import EulerState, euler_init, euler_step
from fv_core.loop.samplers.unipc import UniPCState, unipc_init, unipc_step

SamplerState = EulerState | UniPCState


class Step(Protocol):
    """One sampler step: the next sample and the sampler's next state."""

    def __call__(
        self, state: Any, *, sample: Tensor, velocity: Tensor, x0: Tensor, step: int
    ) -> tuple[Tensor, Any]: ...


class Init(Protocol):
    """The state before the first step: all that follows from the noise levels alone is computed here."""

    def __call__(self, sigmas: Tensor) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """A numerical method: its initial state and its step."""

    init: Init
    step: Step


EULER = Sampler(init=euler_init, step=euler_step)
UNIPC_2 = Sampler(init=unipc_init, step=unipc_step)
