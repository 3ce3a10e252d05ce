"""A request as the user states it, and the same request with every value settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from fv_core.request.adapter import Adapter, UsedAdapter
from fv_core.request.task import ModalPart, TaskType, UsedInput


class Numerics(StrEnum):
    """The promise about bits. The executor and the components keep it; loops and cards never see it.

    reference: one sample per forward on plain modules, comparable with the reference pipeline.
    exact: a request gives the same bits alone, interleaved and batched.
    fast: compatible samples share a forward; equal within the tolerance that the batch gate measures.
    """

    REFERENCE = "reference"
    EXACT = "exact"
    FAST = "fast"


@dataclass(frozen=True, slots=True)
class Size:
    """Pixels, width first as in `832x480`; the one contract built by position, as everybody writes it."""

    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"


EVERYTHING: Final = "*"
"""In `OutputSpec.keep`: every slot that the program writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """What comes back beside the artifacts: `keep` names program slots ("latent", "video") returned as tensors.

    A slot of text comes back as its UTF-8 bytes; caches cannot be kept.
    """

    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One generation as the user states it. None means the card's own value; a None seed is drawn and reported.

    `adapters` add up in their order, which decides bits.
    """

    prompt: str
    model: str | None = None
    task: TaskType | None = None
    negative_prompt: str | None = None
    seed: int | None = None
    size: tuple[int, int] | None = None
    frames: int | None = None
    fps: float | None = None
    steps: int | None = None
    guidance: float | None = None
    numerics: Numerics | None = None
    inputs: tuple[ModalPart, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    params: Mapping[str, float | int | str | bool] = field(default_factory=dict)
    output: OutputSpec = OutputSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """A request after its card has settled every value; what loops, snapshots and sidecars see.

    `params` holds one value for every parameter that the program's loops declare. `adjusted` says, a sentence
    each, what was given and is not used as given.
    """

    model: str
    task: TaskType
    prompt: str
    negative_prompt: str
    seed: int
    size: Size
    frames: int
    fps: float
    steps: int
    guidance: float
    numerics: Numerics
    params: Mapping[str, float | int | str | bool]
    inputs: tuple[UsedInput, ...] = ()
    keep: tuple[str, ...] = ()
    adjusted: tuple[str, ...] = ()
    adapters: tuple[UsedAdapter, ...] = ()
