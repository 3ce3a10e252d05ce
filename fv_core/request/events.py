"""What a run tells while it works: Started, then Loading, StepDone and MediaChunk in order, then Finished or Failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The request was accepted. `total_steps` counts the steps of every node; `adjusted` as in ResolvedRequest."""

    request_id: str
    model: str
    seed: int
    total_steps: int
    adjusted: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The next step is the first to need this component: its weights are read before it computes."""

    request_id: str
    component: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """One step of one node is done. `step` counts from 1 within the node.

    `seconds` is what this request's own calls took in it; `eta_s` is the expected time to the end of this node, with
    whatever shares the engine. `left_s` is what is left of the whole request if it goes on alone; None until steps of
    all kinds that are left have been measured on this machine.
    """

    request_id: str
    node: str
    label: str
    step: int
    total: int
    seconds: float
    eta_s: float
    left_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MediaChunk:
    """Frames that are final before the clip is: uint8 [f, height, width, 3]. `index` counts from 0 without gaps."""

    request_id: str
    index: int
    frames: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The run is over and its result is complete. `seconds` is the sum of its steps' own."""

    request_id: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The run is over without a result; `code` is a registered error code ("FV510" for a cancelled run)."""

    request_id: str
    code: str
    message: str


RequestEvent: TypeAlias = Started | Loading | StepDone | MediaChunk | Finished | Failed
