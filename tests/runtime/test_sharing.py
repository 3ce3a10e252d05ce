"""What shares a forward under exact numerics, and what becomes of it where that changes bits, fails or is refused.

On the kit's own card, with components in place of its own that see, mix or fail.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core import Engine, ModelCard, OutputSpec, Request
from fv_core.errors import RequestError
from fv_core.loop import ComponentOutput, ResolvedCall
from fv_core.request import EVERYTHING, Numerics
from fv_core.runtime.batching import Forwards
from fv_core.runtime.execution.sharing import same_bits
from fv_core.runtime.gain import Always
from fv_core.runtime.job import advance
from fv_core.runtime.together import Result
from fv_core.testing.tiny import CARD

Outputs = list[ComponentOutput]
Forward = Callable[[str, Sequence[ResolvedCall]], Outputs]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@contextmanager
def engine(card: ModelCard = CARD, **options: Any) -> Iterator[Engine]:
    with Engine([card], device="cpu", **{"gain": Always(), **options}) as made:
        yield made


def asked(count: int, numerics: Numerics = Numerics.EXACT, **fields: Any) -> list[Request]:
    small: dict[str, Any] = {
        "steps": 2,
        "frames": 5,
        "size": (16, 16),
        "output": OutputSpec(keep=(EVERYTHING,)),
    }
    return [
        Request(prompt=f"circle {number}", seed=number, numerics=numerics, **{**small, **fields})
        for number in range(count)
    ]


def of(engine: Engine, component: str, op: str) -> Forwards:
    (found,) = (one for one in engine.forwards() if (one.component, one.op) == (component, op))
    return found


def around(engine: Engine, component: str, change: Callable[[Forward], Forward]) -> None:
    """Has `change` make another forward of the component's own."""
    part: Any = engine.instance(CARD.model_id).component(component)
    part.forward_batch = change(part.forward_batch)


def same(one: Sequence[Result], other: Sequence[Result]) -> bool:
    return all(_clip(a).keys() == _clip(b).keys() and all(
        same_bits(_clip(a)[name], _clip(b)[name]) for name in _clip(a)
    ) for a, b in zip(one, other, strict=True))  # fmt: skip


def _clip(result: Result) -> dict[str, Tensor]:
    assert result.clip is not None, result.error
    return dict(result.clip.tensors)


def reference(requests: Sequence[Request]) -> list[Result]:
    with engine() as alone:
        results = alone.run_many(
            [replace(one, numerics=Numerics.REFERENCE) for one in requests], order="serial"
        )
        assert {one.largest for one in alone.forwards()} == {1}
        return results


def test_exact_requests_share_forwards_and_keep_every_bit_of_the_reference() -> None:
    requests = asked(5)
    with engine() as shared:
        assert same(shared.run_many(requests), reference(requests))
        assert of(shared, "denoiser", "velocity") == Forwards(
            model="testing/tiny", component="denoiser", op="velocity",
            forwards=2, rows=20, largest=10, extra=10, dependent=False,
        )  # fmt: skip
        assert (of(shared, "vae", "decode").forwards, of(shared, "vae", "decode").rows) == (2, 10)


@pytest.mark.parametrize(("limit", "forwards"), [(1, 40), (3, 14), (16, 4), (20, 2), (256, 2)])
def test_no_forward_has_more_rows_than_the_engine_allows(limit: int, forwards: int) -> None:
    requests = asked(10)
    with engine(max_batch=limit) as shared:
        shared.run_many(requests)
        found = of(shared, "denoiser", "velocity")
        assert (found.forwards, found.rows, found.largest) == (forwards, 40, min(limit, 20))


def middle_row_off(forward: Forward) -> Forward:
    """One unit in the last place, of a call that is neither the first nor the last."""

    def changed(op: str, calls: Sequence[ResolvedCall]) -> Outputs:
        outputs = forward(op, calls)
        if len(calls) > 2:
            outputs[1].output.tensors["velocity"].view(torch.int32).view(-1)[0] ^= 1
        return outputs

    return changed


def test_a_call_between_others_is_checked_too() -> None:
    requests = asked(3)
    with engine() as shared:
        around(shared, "denoiser", middle_row_off)
        assert same(shared.run_many(requests), reference(requests))
        assert of(shared, "denoiser", "velocity").dependent


def test_calls_of_another_shape_go_on_sharing() -> None:
    """What was found of one kind is no verdict on the others."""

    def large_ones_off(forward: Forward) -> Forward:
        def changed(op: str, calls: Sequence[ResolvedCall]) -> Outputs:
            latent = calls[0].rows["latent"]
            assert isinstance(latent, Tensor)
            return last_row_off(forward)(op, calls) if latent.shape[-1] > 2 else forward(op, calls)

        return changed

    small, large = asked(2), asked(2, size=(32, 32))
    with engine() as shared:
        around(shared, "denoiser", large_ones_off)
        assert same(shared.run_many([*small, *large]), reference([*small, *large]))
        before = of(shared, "denoiser", "velocity")
        assert before.dependent
        shared.run_many(asked(4))
        after = of(shared, "denoiser", "velocity")
        assert (after.forwards - before.forwards, after.rows - before.rows) == (2, 16)


@pytest.mark.parametrize(("threads", "largest"), [(1, 6), (2, 6), (3, 1), (6, 1)])
def test_threads_that_cut_vectors_keep_exact_calls_apart(threads: int, largest: int) -> None:
    torch.set_num_threads(threads)
    with engine() as shared:
        shared.run_many(asked(3))
        assert of(shared, "denoiser", "velocity").largest == largest


@pytest.mark.parametrize("limit", [0, 257, True, 2.0, "8"])
def test_a_limit_that_no_forward_can_have_is_refused(limit: Any) -> None:
    with pytest.raises(RequestError) as caught:
        Engine([CARD], device="cpu", max_batch=limit)
    assert (caught.value.code, caught.value.value, caught.value.legal) == (
        "FV319",
        limit,
        "a whole number from 1 to 256",
    )


def last_row_off(forward: Forward) -> Forward:
    """One unit in the last place, where the call is the last of several."""

    def changed(op: str, calls: Sequence[ResolvedCall]) -> Outputs:
        outputs = forward(op, calls)
        if len(calls) > 1:
            value = outputs[-1].output.tensors["velocity"]
            value.view(torch.int32).view(-1)[-1] ^= 1
        return outputs

    return changed


def test_an_operation_that_depends_on_its_neighbours_runs_alone_from_then_on_and_tells_it_once() -> None:
    requests = asked(3)
    with engine() as shared:
        around(shared, "denoiser", last_row_off)
        results = shared.run_many(requests)
        assert same(results, reference(requests))
        found = of(shared, "denoiser", "velocity")
        assert found.dependent
        assert (found.forwards, found.largest, found.extra) == (12, 1, 7)  # the shared one and six checks
        assert not of(shared, "text", "encode").dependent
        told = "denoiser.velocity gives other bits beside other requests than alone"
        for result in results:
            assert result.clip is not None
            assert sum(told in note for note in result.clip.used.adjusted) == 1
        again = shared.run_many(requests)
        assert same(again, results)
        assert of(shared, "denoiser", "velocity").extra == 7
        assert not any(told in note for one in again if one.clip for note in one.clip.used.adjusted)
        shared.run_many(asked(3, Numerics.FAST))
        assert of(shared, "denoiser", "velocity").largest == 6  # fast ones promise no bits


def test_a_cache_that_depends_on_its_neighbours_is_found_too() -> None:
    def first_cache_off(forward: Forward) -> Forward:
        def changed(op: str, calls: Sequence[ResolvedCall]) -> Outputs:
            outputs = forward(op, calls)
            if op == "decode" and len(calls) > 1:
                ((kept,),) = outputs[0].caches  # type: ignore[misc]
                assert isinstance(kept, Tensor)
                kept.view(-1)[0] = torch.nan
            return outputs

        return changed

    requests = asked(2)
    with engine() as shared:
        around(shared, "vae", first_cache_off)
        assert same(shared.run_many(requests), reference(requests))
        assert [one.op for one in shared.forwards() if one.dependent] == ["decode"]


def test_each_shape_of_a_forward_is_checked_once() -> None:
    with engine() as shared:
        for count, extra in ((3, 3), (3, 3), (2, 5), (3, 5)):
            shared.run_many(asked(count, guidance=1.0, steps=3))
            assert of(shared, "denoiser", "velocity").extra == extra
        shared.run_many(asked(3, guidance=1.0, size=(32, 16)))
        assert of(shared, "denoiser", "velocity").extra == 8


def failing(bad: Callable[[Sequence[ResolvedCall]], bool], error: Exception) -> Callable[[Forward], Forward]:
    """Uses its caches up before it fails, as a decoder that stops halfway does."""

    def change(forward: Forward) -> Forward:
        def changed(op: str, calls: Sequence[ResolvedCall]) -> Outputs:
            if op in ("velocity", "decode") and bad(calls):
                for call in calls:
                    for content in call.caches:
                        content.clear()
                raise error
            return forward(op, calls)

        return changed

    return change


@pytest.mark.parametrize("component", ["denoiser", "vae"])
@pytest.mark.parametrize("numerics", [Numerics.EXACT, Numerics.FAST])
def test_a_shared_forward_that_fails_is_repeated_call_by_call(component: str, numerics: Numerics) -> None:
    requests = asked(3, numerics)
    with engine() as shared:
        around(shared, component, failing(lambda calls: len(calls) > 1, MemoryError()))
        assert same(shared.run_many(requests), reference(requests))
        found = of(shared, component, "velocity" if component == "denoiser" else "decode")
        assert (found.largest, found.extra) == (1, 2)  # one for each step, or frame


@pytest.mark.parametrize("numerics", [Numerics.EXACT, Numerics.FAST])
def test_one_call_that_fails_ends_its_request_and_no_other(numerics: Numerics) -> None:
    requests = asked(3, numerics)
    with engine() as shared:
        jobs = [shared.start(one) for one in requests]
        bad = {job.run.id: job for job in jobs}[jobs[1].run.id]

        def is_bad(calls: Sequence[ResolvedCall]) -> bool:
            latent = None if bad.run.done or bad.run.state is None else getattr(bad.run.state, "latent", None)
            return any(call.rows.get("latent") is latent for call in calls)

        around(shared, "denoiser", failing(is_bad, ArithmeticError("no blue")))
        while going := [job for job in jobs if not job.done]:
            advance(going)
        errors = [None if job.error is None else job.error.code for job in jobs]
        assert errors == [None, "FV502", None]


def test_groups_are_never_split() -> None:
    joint = replace(CARD.loops["denoise"], params={"cfg": "joint"})
    card = replace(CARD, loops={**CARD.loops, "denoise": joint})
    with engine(card, max_batch=5) as shared:
        results = shared.run_many(asked(5))
        found = of(shared, "denoiser", "velocity")
        assert (found.forwards, found.rows, found.largest) == (6, 20, 4)
        assert same(results, shared.run_many(asked(5), order="serial"))
    with engine(card, max_batch=1) as shared:
        shared.run_many(asked(1))
        assert of(shared, "denoiser", "velocity").largest == 2


def test_what_gains_nothing_is_not_shared() -> None:
    class Never(Always):
        def joins(self, kind: Hashable, rows: int, more: int) -> bool:
            return False

    requests = asked(3)
    with engine(gain=Never()) as apart:
        assert same(apart.run_many(requests), reference(requests))
        assert {one.largest for one in apart.forwards()} == {1}


def test_bits_are_compared_strictly() -> None:
    one = torch.tensor([1.0, torch.nan, 0.0])
    assert same_bits(one, one.clone())
    assert not same_bits(one, torch.tensor([1.0, torch.nan, -0.0]))
    assert not same_bits(one, one.double())
    assert not same_bits(one, one[None])
    assert same_bits(torch.tensor(True), torch.tensor(True))
    assert not same_bits(torch.tensor(1), torch.tensor(2))
