"""The gates see each mistake they exist for: every mutant below differs from the reference, and from the goldens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core import Engine, Request
from fv_core.loop import chunk_rollout
from fv_core.loop.rng import torch_normal
from fv_core.loop.work import ComponentCall
from fv_core.media.inputs import decode_part
from fv_core.parity.reference import run_reference
from fv_core.parity.taps import record
from fv_core.request import Numerics, TaskType
from fv_core.runtime.requests.resolve import settle
from fv_wan_causal import denoiser, forward, vae
from fv_wan_causal.card import CHUNK, TINY
from fv_wan_causal.probes import probes

Mutation = Callable[[pytest.MonkeyPatch], None]
ROUNDING = 1e-5
TINY_WINDOW = 7


def _call(mutate: pytest.MonkeyPatch, change: Callable[[ComponentCall], ComponentCall]) -> None:
    """Changes what the loop asks for at each chunk."""
    plain = chunk_rollout.ChunkRollout._call
    mutate.setattr(chunk_rollout.ChunkRollout, "_call", lambda self, state: change(plain(self, state)))


def _rows(call: ComponentCall, **values: int) -> ComponentCall:
    return replace(call, rows={**call.rows, **values})


def past_ignored(mutate: pytest.MonkeyPatch) -> None:
    mutate.setattr(denoiser, "_joined", lambda past, own, sink, recent: own)


def nothing_evicted(mutate: pytest.MonkeyPatch) -> None:
    _call(mutate, lambda call: _rows(call, recent=1000))


def sink_evicted(mutate: pytest.MonkeyPatch) -> None:
    _call(mutate, lambda call: _rows(call, sink=0, recent=TINY_WINDOW - CHUNK))


def frames_counted_from_each_chunk(mutate: pytest.MonkeyPatch) -> None:
    _call(mutate, lambda call: _rows(call, start=0))


def one_time_for_all_frames(mutate: pytest.MonkeyPatch) -> None:
    _call(mutate, lambda call: _rows(call, times=1))


def noisy_chunk_committed(mutate: pytest.MonkeyPatch) -> None:
    def at_last_level(call: ComponentCall) -> ComponentCall:
        return replace(call, rows={**call.rows, "timestep": 625.0}) if call.op == "commit" else call

    _call(mutate, at_last_level)


def noise_drawn_channel_by_channel(mutate: pytest.MonkeyPatch) -> None:
    mutate.setattr(chunk_rollout, "_noise", torch_normal)


def renoised_with_the_first_noise(mutate: pytest.MonkeyPatch) -> None:
    plain = chunk_rollout._renoised

    def stuck(x0: Tensor, sigma: float, rng: Tensor) -> tuple[Tensor, Tensor]:
        return plain(x0, sigma, rng)[0], rng

    mutate.setattr(chunk_rollout, "_renoised", stuck)


def angles_in_single_precision(mutate: pytest.MonkeyPatch) -> None:
    plain = forward.rotary
    mutate.setattr(forward, "rotary", lambda *at, device: plain(*at, device=device).to(torch.complex64))
    mutate.setattr(forward, "_rotated", lambda x, angles: _single(x, angles))


def _single(x: Tensor, angles: Tensor) -> Tensor:
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * angles).flatten(-2)


def input_scaled_by_std(mutate: pytest.MonkeyPatch) -> None:
    plain = vae.Vae._encode

    def encode(self: Any, call: Any) -> Any:
        out = plain(self, call)
        latent = out.output.tensors["latent"] * self._std[0] ** 2
        return replace(out, output=replace(out.output, tensors={"latent": latent}))

    mutate.setattr(vae.Vae, "_encode", encode)


MUTATIONS: list[Mutation] = [
    past_ignored,
    nothing_evicted,
    sink_evicted,
    frames_counted_from_each_chunk,
    one_time_for_all_frames,
    noisy_chunk_committed,
    noise_drawn_channel_by_channel,
    renoised_with_the_first_noise,
    angles_in_single_precision,
]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine([TINY], device="cpu", reuse=False) as made:
        yield made


@pytest.fixture(scope="module")
def difference(engine: Engine) -> Callable[[TaskType], float]:
    """The largest difference in a clip of fv as it is now from the reference as it was."""
    asked = {
        task: next(one for one in probes(TINY) if one.task is task) for task in (TaskType.T2V, TaskType.V2V)
    }
    instance = engine.instance(TINY.model_id)
    inputs = {TaskType.T2V: {}, TaskType.V2V: {"request.video": _video(asked[TaskType.V2V])}}
    settled = {task: settle(one, TINY, Numerics.REFERENCE).request for task, one in asked.items()}
    theirs = {task: run_reference(instance, settled[task], inputs[task])["video"] for task in asked}

    def now(task: TaskType) -> float:
        return float((record(engine, asked[task]).taps["video"] - theirs[task]).abs().max())

    return now


def _video(request: Request) -> Tensor:
    return torch.from_numpy(decode_part(request.inputs[0], request.inputs[0].data).content)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutant_differs_from_the_reference(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch, difference: Callable[[TaskType], float]
) -> None:
    mutation(monkeypatch)
    assert difference(TaskType.T2V) > 0.0


@pytest.mark.parametrize("mutation", [input_scaled_by_std, one_time_for_all_frames])
def test_mutant_differs_from_the_reference_on_a_clip_that_goes_on(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch, difference: Callable[[TaskType], float]
) -> None:
    mutation(monkeypatch)
    assert difference(TaskType.V2V) > 0.0


@pytest.mark.parametrize("task", [TaskType.T2V, TaskType.V2V])
def test_unmutated_run_equals_the_reference(task: TaskType, difference: Callable[[TaskType], float]) -> None:
    assert difference(task) == 0.0


@pytest.mark.parametrize(
    "mutation",
    [past_ignored, sink_evicted],
    ids=lambda mutation: mutation.__name__,
)
def test_mutant_differs_from_the_goldens_by_far_more_than_rounding(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch, official: Any, goldens: Any
) -> None:
    mutation(monkeypatch)
    mine = official.run("w6_s1", monkeypatch).chunks
    apart = [float((a - b).abs().max()) for a, b in zip(mine, goldens.chunks("w6_s1"), strict=True)]
    assert apart[0] <= ROUNDING  # the first chunk has no past
    assert apart[-1] > 100 * ROUNDING
