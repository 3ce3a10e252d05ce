"""Work as data: what a loop asks for, what comes back. Free of torch; tensors appear only as annotations."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from fv_core.cache import CacheContent, CacheRef, ValueRef
from fv_core.request import Numerics

if TYPE_CHECKING:
    from torch import Tensor, nn

Row: TypeAlias = "Tensor | ValueRef | str | int | float"
Static: TypeAlias = "str | int | float | bool"


class WorkKind(StrEnum):
    """What a step of a loop costs, in kind; interceptors and schedulers tell steps apart by it."""

    COMPONENT = "component"
    FLOW_DENOISE = "flow_denoise"
    CHUNK_ROLLOUT = "chunk_rollout"
    AR_DECODE = "ar_decode"
    VAE_DECODE = "vae_decode"


class CacheMode(StrEnum):
    """What a call does with a cache."""

    READ = "read"
    APPEND = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheUse:
    """A cache a call uses. READ yields the same reference, APPEND the next version, which uses `ref` up.

    With `into`, the id of an empty cache (`LoopEnv.cache`), APPEND forks: `ref` stays as it is, and the result is
    version 1 of `into`.

    An append that is `shared` depends on nothing but the call's rows, its static values and the caches it uses, and is
    worth keeping for other requests: an equal call then gets this one's result. Set it for what a prompt or an input
    comes to, not for what is drawn.
    """

    ref: CacheRef
    mode: CacheMode
    into: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentCall:
    """One operation on one component for one sample.

    Args:
        component: component id of the card.
        op: operation that the component offers.
        rows: per-sample values: tensors without a batch axis, references, numbers, text.
        static: call-wide values, which must be equal to share a forward.
        branch: guidance branch ("cond", "uncond"); interceptor state is kept per branch.
        group: calls of one plan with an equal group run in one forward, in order; None runs alone or with others.
        caches: caches it reads or appends to.
    """

    component: str
    op: str
    rows: Mapping[str, Row]
    static: Mapping[str, Static] = field(default_factory=dict)
    branch: str = "cond"
    group: str | None = None
    caches: tuple[CacheUse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """The next step of a loop.

    `step` counts from 0 and `total` is the most there can be: a loop may end earlier. `sigma` is the noise level at
    the step, where there is one.
    """

    calls: tuple[ComponentCall, ...]
    kind: WorkKind
    step: int
    total: int
    sigma: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The loop has nothing more to ask for; `finalize` has its outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The loop cannot go on before a stream that it reads brings something (`StreamLoop.feed`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutput:
    """What one call returned, by the op's output names, and what its user should be told.

    `texts` are outputs that are strings (an answer). `notes` are sentences such as "the prompt was cut to 512
    tokens"; the result reports them as adjusted.
    """

    tensors: Mapping[str, Tensor]
    texts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """Lines up with the plan's calls: `caches[i]` holds the references that call i returned for its `caches`."""

    outputs: tuple[CallOutput, ...]
    caches: tuple[tuple[CacheRef, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Emission:
    """A part of an output that is final before the loop is.

    Args:
        output: the loop's name of the output; the program says which slot it is. A part of the artifact "video" is
            told to the caller, one that another node reads as a stream is fed to it.
        index: counts from 0 per output.
        tensor: "video": fp32 [f, height, width, 3] in [0, 1].
    """

    output: str
    index: int
    tensor: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedCall:
    """A call as a component sees it: references replaced by what they name.

    Tensors are never changed in place. The lists of `caches` are the component's to change: it returns them, or new
    ones, as the next version. `numerics` is what the component owes the call: the bits of the reference, bits that do
    not depend on who shares the forward, or speed.
    """

    rows: Mapping[str, Tensor | str | int | float]
    static: Mapping[str, Static]
    caches: tuple[CacheContent, ...]
    numerics: Numerics = Numerics.REFERENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentOutput:
    """What a component returns for one call; `caches` line up with the call's, None for one that was only read."""

    output: CallOutput
    caches: tuple[CacheContent | None, ...] = ()


class Component(Protocol):
    """A module with named operations on lists of single samples; it owns how they are packed into a forward."""

    @property
    def module(self) -> nn.Module:
        """The weights: what is counted, moved, and shared between the loops that bind the component."""
        ...

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        """Calls of one op with equal keys may share a forward.

        Under `exact` calls have equal keys only if sharing cannot change their bits; under `reference` nothing is
        shared, whatever the key.
        """
        ...

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        """Runs calls of equal `batch_key` in one forward, in order. Keeps no state between calls."""
        ...
