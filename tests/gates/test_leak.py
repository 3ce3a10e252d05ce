"""The leak gate: however a request ends, everything comes back; and what is not finite is never shown."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core import CancelScope, Engine, Failed, FvError, MediaChunk, Request, StepDone
from fv_core.extend import InterceptorSpec
from fv_core.request import Numerics, RequestEvent
from fv_core.runtime.stores import Counters

Ask = Callable[..., Request]
NOTHING = Counters(requests=0, values=0, value_bytes=0, caches=0, cache_bytes=0)


def spoil(value: float, component: str, op: str, at: int) -> Callable[[Any, list[Any]], list[Any]]:
    """Puts `value` into one number of the output of the `at`-th call of a component's operation, whenever it is run:
    a fault of the numbers meets the call in a shared forward as it does alone.
    """
    seen: list[object] = []

    def after(forward: Any, outputs: list[Any]) -> list[Any]:
        if (forward.component, forward.op) != (component, op):
            return outputs
        found = []
        for rows, output in zip(forward.rows, outputs, strict=True):
            call = [(name, row.tolist() if isinstance(row, Tensor) else row) for name, row in rows.items()]
            if call not in seen:
                seen.append(call)
            found.append(spoiled(output) if seen.index(call) + 1 == at else output)
        return found

    def spoiled(output: Any) -> Any:
        tensors = {name: tensor.clone() for name, tensor in output.output.tensors.items()}
        for tensor in tensors.values():
            tensor[(-1,) * tensor.dim()] = value
        return replace(output, output=replace(output.output, tensors=tensors))

    return after


def raising(component: str) -> Callable[[Any], None]:
    def before(forward: Any) -> None:
        if forward.component == component:
            raise ArithmeticError(component)

    return before


def spoiling(*how: Any) -> Callable[[Any], None]:
    return lambda watch: setattr(watch, "after", spoil(*how))


def failing(component: str) -> Callable[[Any], None]:
    return lambda watch: setattr(watch, "before", raising(component))


ENDS: dict[str, Callable[[Any], None]] = {
    "finished": lambda watch: None,
    "the text encoder raises": failing("text"),
    "the denoiser raises": failing("transformer"),
    "the decoder raises": failing("vae"),
    "a velocity is not finite": spoiling(torch.nan, "transformer", "velocity", 2),
    "a chunk is not finite": spoiling(torch.inf, "vae", "decode", 2),
}


@pytest.mark.parametrize("numerics", Numerics)
@pytest.mark.parametrize("end", ENDS)
def test_counters_return_to_zero(end: str, numerics: Numerics, engine: Engine, watch: Any, ask: Ask) -> None:
    ENDS[end](watch)
    results = engine.run_many(
        [ask(numerics=numerics), ask(seed=2, numerics=numerics)], observer=lambda event: None
    )
    assert any(not result.ok for result in results) is (end != "finished")
    assert engine.counters() == NOTHING


def test_observer_that_raises_is_switched_off_and_told_and_the_request_lives(
    engine: Engine, ask: Ask
) -> None:
    seen: list[RequestEvent] = []

    def observe(event: RequestEvent) -> None:
        seen.append(event)
        if isinstance(event, StepDone):
            raise KeyError("lost")

    plain, clip = engine.run(ask()), engine.run(ask(), observer=observe)
    assert torch.equal(clip.tensors["latent"], plain.tensors["latent"])
    assert len(seen) == 2
    assert any("observer was switched off: KeyError" in note for note in clip.used.adjusted)
    assert engine.counters() == NOTHING


def test_refused_requests_hold_nothing(engine: Engine, ask: Ask) -> None:
    for request in (ask(size=(17, 17)), ask(prompt=" "), ask(model="wan21/absent")):
        with pytest.raises(FvError):
            engine.start(request)
    assert engine.counters() == NOTHING


@pytest.mark.parametrize(
    ("component", "op", "at", "told"),
    [
        ("text", "encode", 1, "embeds of text.encode (cond, step 1)"),
        ("transformer", "velocity", 3, "velocity of transformer.velocity (cond, step 2)"),
        ("transformer", "velocity", 4, "velocity of transformer.velocity (uncond, step 2)"),
        ("vae", "prepare", 1, "latent of vae.prepare (cond, step 1)"),
        ("vae", "decode", 2, "frames of vae.decode (cond, step 3)"),
    ],
)
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_fails_the_request_by_name_and_is_never_shown(
    value: float, component: str, op: str, at: int, told: str, engine: Engine, watch: Any, ask: Ask
) -> None:
    watch.after = spoil(value, component, op, at)
    events: list[RequestEvent] = []
    with pytest.raises(FvError) as caught:
        engine.run(ask(), observer=events.append)
    assert caught.value.code == "FV501"
    assert told in caught.value.message
    assert isinstance(events[-1], Failed)
    chunks = [event for event in events if isinstance(event, MediaChunk)]
    assert len(chunks) == (1 if op == "decode" else 0)
    steps = [event for event in events if isinstance(event, StepDone)]
    assert not [
        step for step in steps if told.endswith(f"step {step.step})") and step.node == _node(component)
    ]
    assert engine.counters() == NOTHING


def _node(component: str) -> str:
    return {"text": "encode", "transformer": "denoise", "vae": "decode"}[component]


def test_neighbours_of_a_request_that_is_not_finite_keep_their_bits(
    engine: Engine, watch: Any, ask: Ask
) -> None:
    expected = [engine.run(ask(seed=seed)).tensors["latent"] for seed in (1, 3)]
    watch.after = spoil(torch.nan, "transformer", "velocity", 2)
    bad, *good = engine.run_many([ask(seed=2), ask(seed=1), ask(seed=3)])
    assert bad.error is not None
    assert bad.error.code == "FV501"
    for result, latent in zip(good, expected, strict=True):
        assert result.clip is not None
        assert torch.equal(result.clip.tensors["latent"], latent)


def test_no_tensor_is_left_behind(engine: Engine, watch: Any, ask: Ask) -> None:
    def tensors() -> int:
        gc.collect()
        return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())

    def round_of_requests() -> None:
        watch.before = lambda forward: None
        engine.run_many([ask(), ask(seed=2, frames=9)])
        cancel = CancelScope()
        engine.run_many([ask()], cancel=cancel, observer=lambda event: cancel.cancel())
        for name in ("transformer", "vae"):
            watch.before = raising(name)
            with suppress(FvError):
                engine.run(ask())
        watch.forwards.clear()

    round_of_requests()
    before = tensors()
    for _ in range(3):
        round_of_requests()
    assert tensors() <= before


def test_interceptor_that_fails_ends_its_request_and_leaves_nothing(
    ask: Ask, interceptor: Callable[..., InterceptorSpec]
) -> None:
    broken = replace(interceptor("OwnState"), params="gate_interceptors:State")  # has no `damping`
    with Engine(["wan21/micro"], device="cpu", extensions=[broken]) as engine:
        (result,) = engine.run_many([ask(steps=2)])
        assert result.error is not None
        assert result.error.code == "FV503"
        assert "gate/ownstate" in result.error.message
        assert engine.counters() == NOTHING


def test_interceptor_that_alters_the_distribution_is_refused_where_bits_are_promised(
    ask: Ask, interceptor: Callable[..., InterceptorSpec]
) -> None:
    with Engine(["wan21/micro"], device="cpu", extensions=[interceptor("OwnState", altering=True)]) as engine:
        for numerics in (Numerics.EXACT, Numerics.REFERENCE):
            (result,) = engine.run_many([ask(numerics=numerics)])
            assert result.error is not None
            assert result.error.code == "FV314"
        clip = engine.run(ask(numerics=Numerics.FAST))
        assert clip.used.extensions == ("gate/ownstate:damping=0.9",)
        assert engine.counters() == NOTHING
