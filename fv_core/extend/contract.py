"""Interceptors: extensions that alter compute, one step of one guidance branch at a time.

An interceptor is an object without state of its own: what it remembers is a typed, snapshotable value that the
runtime keeps per request, node and branch and hands to every call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, Self, TypeVar, cast, get_args, get_origin

from fv_core.card.names import MODEL_ID
from fv_core.card.value_types import value_types
from fv_core.loop.work import WorkKind

if TYPE_CHECKING:
    from fv_core.loop.work import CallOutput, ComponentCall, WorkPlan

Params = TypeVar("Params")
State = TypeVar("State")


@dataclass(frozen=True, slots=True, kw_only=True)
class InterceptorSpec:
    """An interceptor as a plugin offers it.

    Args:
        id: `<plugin>/<name>`, as a model id.
        loop_kinds: kinds of work it may alter, values of `WorkKind` ("flow_denoise").
        level: where it attaches; "step" sees whole component calls.
        distribution_altering: True if its outputs are not those of the plain model; refused unless numerics is fast.
        params: `"module:attr"` of its frozen parameter dataclass; every field has a default.
        factory: `"module:attr"` of the `Interceptor` class.
    """

    id: str
    loop_kinds: tuple[str, ...]
    distribution_altering: bool
    params: str
    factory: str
    level: Literal["step"] = "step"

    def faults(self) -> tuple[str, ...]:
        """What would keep it from ever running, a clause each; () for a sound record."""
        if wrong := list(value_types(self)):
            return tuple(f"{error.name} {error.value!r} {error.rule}" for error in wrong)
        unknown = [kind for kind in self.loop_kinds if kind not in tuple(WorkKind)]
        found = [f"loop kind {kind!r} is none of {', '.join(WorkKind)}" for kind in unknown]
        if not self.loop_kinds:
            found.append("it names no loop kinds")
        if not MODEL_ID.fullmatch(self.id):
            found.append(
                "its id is not <plugin>/<name>, each of a-z and 0-9 in words that one of . _ - joins"
            )
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """Where in a run a call stands. `step` counts from 0; `sigma` is the noise level, None where there is none."""

    kind: WorkKind
    step: int
    total: int
    sigma: float | None
    branch: str

    @classmethod
    def of(cls, call: ComponentCall, plan: WorkPlan) -> Self:
        """Where `call` of `plan` stands."""
        return cls(kind=plan.kind, step=plan.step, total=plan.total, sigma=plan.sigma, branch=call.branch)


class Interceptor(Generic[Params, State]):
    """Subclass as `class Mine(Interceptor[MyParams, MyState])`; `MyState` is a dataclass of tensors and numbers."""

    @classmethod
    def state_type(cls) -> type:
        """`MyState` of the declaration above; what a snapshot reads a stored state into.

        Raises:
            TypeError: the class declares none.
        """
        bases = getattr(cls, "__orig_bases__", ())
        declared = [get_args(base)[1] for base in bases if get_origin(base) is Interceptor]
        if not declared:
            raise TypeError(f"{cls.__name__} is not declared as Interceptor[its parameters, its state]")
        return cast(type, declared[0])

    def initial(self, params: Params) -> State:
        """The state before the first call of a request's branch."""
        raise AssertionError(f"{type(self).__name__} defines no initial state")

    def before(self, call: ComponentCall, at: At, state: State, params: Params) -> CallOutput | None:
        """An output answers the call without computing it; None computes it."""
        return None

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        """The state after a call that was computed; pure."""
        return state
