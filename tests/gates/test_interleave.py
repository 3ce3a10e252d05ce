"""The interleave gate: requests that take steps in turn give the bits that each gives alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from fv_core import Engine, Request
from fv_core.extend import InterceptorSpec
from fv_core.request import Numerics
from fv_core.runtime.together import Result

Mixed = Callable[..., list[Request]]
Record = Callable[..., InterceptorSpec]
BITS = [Numerics.EXACT, Numerics.REFERENCE]


def differing(one: Sequence[Result], other: Sequence[Result]) -> list[int]:
    """Which requests came out otherwise: another latent, other frames, or a failure."""
    return [index for index, pair in enumerate(zip(one, other, strict=True)) if not _same(*pair)]


def _same(one: Result, other: Result) -> bool:
    if one.clip is None or other.clip is None:
        return False
    latents = one.clip.tensors["latent"], other.clip.tensors["latent"]
    assert all(latent.isfinite().all() for latent in latents)
    return torch.equal(*latents) and np.array_equal(one.clip.frames, other.clip.frames)


def both_ways(engine: Engine, requests: list[Request]) -> list[int]:
    serial = engine.run_many(requests, order="serial")
    return differing(serial, engine.run_many(requests, order="interleaved"))


@pytest.mark.parametrize("numerics", BITS)
def test_interleaved_requests_equal_serial_ones_bit_for_bit(
    numerics: Numerics,
    engine: Engine,
    mixed: Mixed,
    soak: bool,
    record_property: Callable[[str, object], None],
) -> None:
    mixes = 60 if soak else 4
    record_property("mixes that equal their serial runs", mixes)
    for seed in range(mixes):
        requests = mixed(seed, count=8 if soak else 4, numerics=numerics)
        assert both_ways(engine, requests) == [], f"seed {seed}"


def test_neighbours_and_their_order_do_not_change_a_request(engine: Engine, mixed: Mixed) -> None:
    requests = mixed(99, count=5, numerics=Numerics.EXACT)
    alone = engine.run_many(requests, order="serial")
    backwards = engine.run_many(requests[::-1], order="interleaved")[::-1]
    assert differing(alone, backwards) == []
    fewer = engine.run_many(requests[1:3], order="interleaved")
    assert differing(alone[1:3], fewer) == []


def test_exact_and_reference_numerics_give_the_same_bits(engine: Engine, mixed: Mixed) -> None:
    exact, reference = (engine.run_many(mixed(7, count=3, numerics=numerics)) for numerics in BITS)
    assert differing(exact, reference) == []


@pytest.mark.parametrize("numerics", BITS)
def test_an_interceptor_with_its_own_state_passes_the_gate_and_is_at_work(
    numerics: Numerics, engine: Engine, mixed: Mixed, interceptor: Record
) -> None:
    requests = mixed(3, count=4, numerics=numerics)
    with Engine(["wan21/micro"], device="cpu", extensions=[interceptor("OwnState")]) as altered:
        assert both_ways(altered, requests) == []
        longer = [index for index, request in enumerate(requests) if request.steps != 1]
        assert differing(altered.run_many(requests), engine.run_many(requests)) == longer


def test_control_an_interceptor_with_a_module_global_breaks_the_gate(
    ask: Callable[..., Request], interceptor: Record
) -> None:
    requests = [
        ask(seed=seed, steps=4, prompt=prompt)
        for seed, prompt in enumerate(("a red circle", "a blue square"))
    ]
    with Engine(["wan21/micro"], device="cpu", extensions=[interceptor("GlobalState")]) as engine:
        assert both_ways(engine, requests) != []
    with Engine(["wan21/micro"], device="cpu", extensions=[interceptor("OwnState")]) as engine:
        assert both_ways(engine, requests) == []


def test_control_the_gate_sees_a_single_bit(engine: Engine, ask: Callable[..., Request]) -> None:
    (result,), (again,) = engine.run_many([ask()]), engine.run_many([ask()])
    assert differing([result], [again]) == []
    assert again.clip is not None
    again.clip.tensors["latent"].view(torch.int32)[0, 0, 0, 0] ^= 1
    assert differing([result], [again]) == [0]
