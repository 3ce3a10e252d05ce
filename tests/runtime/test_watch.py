"""Results that are not finite: found without waiting for the device at a step, told before anything is shown or kept,
and of no concern to those who shared the forward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fv_core import Engine, OutputSpec, Request
from fv_core.errors import RunError
from fv_core.request import MediaChunk
from fv_core.runtime import job as jobs
from fv_core.runtime import run as runs
from fv_core.runtime.gain import Always
from fv_core.runtime.job import Job, advance
from fv_core.runtime.watch import NonFiniteWatch, all_finite
from fv_core.testing.tiny import CARD, Denoiser, Vae

COUNT = 4
BAD = 1
"""Of so many requests the one that has a step more, and so timesteps of its own."""
SPOILED = 600
"""The timestep of its third step."""
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.fixture
def small() -> Iterator[Engine]:
    """An engine on the kit's card."""
    torch.set_num_threads(1)
    with Engine([CARD], device="cpu", gain=Always()) as made:
        yield made


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are watched as on an accelerator: a step collects what is read later."""
    monkeypatch.setattr(runs, "NonFiniteWatch", lambda device: NonFiniteWatch(torch.device("cuda")))


def asked(number: int) -> Request:
    return Request(
        prompt=f"{number} red circles", seed=number, size=(16, 16), frames=5, steps=5 if number == BAD else 4,
        output=OutputSpec(keep=("latent", "video")),
    )  # fmt: skip


def spoiled(operation: Callable[..., Any], spoils: Callable[[Any], bool]) -> Callable[..., Any]:
    """The operation, with infinity in what comes back for calls that `spoils` says yes to."""

    def spoiling(self: Any, calls: Any) -> Any:
        outputs = operation(self, calls)
        for call, output in zip(calls, outputs, strict=True):
            for tensor in output.output.tensors.values() if spoils(call) else ():
                tensor.view(-1)[0] = math.inf
        return outputs

    return spoiling


@pytest.fixture
def one_is_spoiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Denoiser, "velocity", spoiled(Denoiser.velocity, lambda call: call.rows["timestep"] == SPOILED)
    )


def driven(engine: Engine, jobs: list[Job]) -> int:
    """Steps all jobs together to their ends; how many steps the bad one took in denoising."""
    taken = 0
    while going := [job for job in jobs if not job.done]:
        taken += not jobs[BAD].done and jobs[BAD].run.turn == "denoise"
        advance(going)
    return taken


@pytest.mark.parametrize("late", [False, True])
def test_one_that_is_not_finite_ends_alone_though_others_share_its_forwards(
    late: bool, small: Engine, request: pytest.FixtureRequest
) -> None:
    alone = [small.run(asked(number)).tensors for number in range(COUNT)]
    for fixture in ("accelerator", "one_is_spoiled") if late else ("one_is_spoiled",):
        request.getfixturevalue(fixture)
    with ExitStack() as stack:
        all_jobs = [stack.enter_context(closing(small.start(asked(number)))) for number in range(COUNT)]
        assert driven(small, all_jobs) == (5 if late else 3)
        (velocity,) = (one for one in small.forwards() if one.op == "velocity")
        assert velocity.largest == 2 * COUNT
        for number, job in enumerate(all_jobs):
            if number == BAD:
                assert job.error is not None
                assert job.error.code == "FV501"
                assert job.error.name == "velocity of denoiser.velocity (cond, step 3)"
            else:
                tensors = small.clip(job).tensors
                assert all(torch.equal(tensor, alone[number][name]) for name, tensor in tensors.items())
    assert small.counters().requests == 0


READS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__")
"""What waits for a device when asked of a tensor on it."""


def test_no_step_of_a_batch_waits_for_the_device_and_the_last_does_once(
    small: Engine, accelerator: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def counted(name: str, asked: Callable[..., Any]) -> Callable[..., Any]:
        def counting(self: Tensor, *given: Any) -> Any:
            if self.data_ptr() not in sigmas:  # those are on the host everywhere
                reads.append(name)
            return asked(self, *given)

        return counting

    with ExitStack() as stack:
        together = [stack.enter_context(closing(small.start(asked(0)))) for _ in range(COUNT)]
        for _ in range(
            3
        ):  # the prompts, and the first step of each shape, which is checked against its rows alone
            advance(together)
        states = [job.run.state for job in together]
        sigmas = {one.data_ptr() for state in states for one in state.sigmas}
        for name in READS:
            monkeypatch.setattr(Tensor, name, counted(name, getattr(Tensor, name)))
        monkeypatch.setattr(torch, "equal", counted("equal", torch.equal))
        while states[0].step < 3:
            advance(together)
            states = [job.run.state for job in together]
        assert reads == []
        advance(together)
        assert reads == ["tolist"] * COUNT
        assert {job.run.turn for job in together} == {"decode"}


def test_nothing_is_stored_before_its_ends_are_read(
    small: Engine, accelerator: None, one_is_spoiled: None
) -> None:
    with closing(small.start(asked(BAD))) as job:
        while job.run.state is None or job.run.turn != "denoise" or job.run.state.step < 3:
            small.snapshot(job)
            job.step()
        with pytest.raises(RunError) as caught:
            small.snapshot(job)
        assert caught.value.code == "FV501"


def test_nothing_is_shown_before_its_ends_are_read(
    small: Engine, accelerator: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Vae, "decode", spoiled(Vae.decode, lambda call: True))
    monkeypatch.setattr(jobs, "frames_from_video", lambda video: video)
    seen: list[object] = []
    with closing(small.start(asked(0), observer=seen.append)) as job:
        while not job.done:
            job.step()
        assert job.error is not None
        assert job.error.code == "FV501"
    assert not any(isinstance(event, MediaChunk) for event in seen)


@given(
    st.lists(st.lists(st.floats(width=16), max_size=70), max_size=4),
    st.sampled_from(TYPES),
)
def test_ends_are_finite_exactly_if_all_values_are(values: list[list[float]], dtype: torch.dtype) -> None:
    tensors = [torch.tensor(some, dtype=dtype) for some in values]
    assert all_finite(tensors) == all(bool(one.isfinite().all()) for one in tensors)


def test_what_is_not_of_floating_point_or_empty_is_finite() -> None:
    assert all_finite([torch.zeros(0), torch.ones(2, dtype=torch.int64), torch.ones(1, dtype=torch.bool)])
