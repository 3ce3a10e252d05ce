"""Chunks that share a forward: under `exact` each has the bits it has alone, whoever its neighbours are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fv_core import Engine, Request
from fv_core.errors import Cancelled
from fv_core.loop import ComponentOutput, ResolvedCall
from fv_core.loop.packing import LeastRows
from fv_core.request import CancelScope, Numerics
from fv_core.runtime.gain import Always
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.runtime.job import Job, advance
from fv_wan_causal import forward
from fv_wan_causal.card import TINY
from fv_wan_causal.probes import probes

OPS = ("text", "velocity", "commit")
FRAME = 4  # tokens of a latent frame at 32x32
FORWARD_TOLERANCE = 1e-5
"""Of `fast` against `reference` in one forward, fp32. Measured: 1.2e-6 for 8 chunks of 4 to 1024 tokens a frame."""
CLIP_TOLERANCE = 1e-5
"""Of the latents of whole `fast` clips against exact ones, fp32. Measured: 6e-7."""


@pytest.fixture(scope="module")
def denoiser() -> Any:
    instance = ModelInstance(
        TINY, device=torch.device("cpu"), dtype=torch.float32, folder=None, offload=Offload.NONE
    )
    return instance.component("transformer")


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def sample(op: str, number: int, frame: tuple[int, int] = (4, 4)) -> ResolvedCall:
    """A call unlike its neighbours in length, place, window, noise level and prompt; every second one evicts."""
    generator = torch.Generator("cpu").manual_seed(number)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    if op == "text":
        return ResolvedCall(rows={"text": noise(512 - 31 * number, 32)}, static={}, caches=([],))
    frames, past = (3, 1, 3, 2)[number % 4], (0, 7, 3, 7, 6)[number % 5]
    rows: dict[str, Any] = {
        "latent": noise(16, frames, *frame),
        "timestep": (1000.0, 937.5, 833.3333, 625.0, 0.0)[number % 5],
        "start": 3 * number,
        "sink": 1,
        "recent": 6 - frames,
        "times": 1 if number % 3 == 2 else frames,
    }
    tokens = past * frame[0] * frame[1] // 4
    window = [noise(tokens, 2, 16) for _ in range(12)] if past else []
    text = [noise(512, 2, 16) for _ in range(12)]
    return ResolvedCall(rows=rows, static={}, caches=([*window], [*text]))


def run(component: Any, op: str, calls: Sequence[ResolvedCall], numerics: Numerics) -> list[list[Tensor]]:
    """Of each call everything that comes back; the calls' own caches stay as they are."""
    calls = [
        replace(call, numerics=numerics, caches=tuple([*content] for content in call.caches))
        for call in calls
    ]
    assert numerics is Numerics.REFERENCE or len({component.batch_key(op, call) for call in calls}) == 1
    outputs: list[ComponentOutput] = component.forward_batch(op, calls)
    return [[*one.output.tensors.values(), *kept(one)] for one in outputs]


def kept(output: ComponentOutput) -> list[Tensor]:
    return [item for content in output.caches for item in content or [] if isinstance(item, Tensor)]


def differing(ones: Sequence[Sequence[Tensor]], others: Sequence[Sequence[Tensor]]) -> list[float]:
    """Of each call the largest difference."""
    return [
        max(float((a.double() - b.double()).abs().max()) for a, b in zip(one, other, strict=True))
        for one, other in zip(ones, others, strict=True)
    ]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("frame", [(4, 4), (6, 10)])
def test_samples_have_the_bits_of_the_reference_among_any_others(
    op: str, frame: tuple[int, int], denoiser: Any
) -> None:
    calls = [sample(op, number, frame) for number in range(8)]
    alone = [run(denoiser, op, [call], Numerics.REFERENCE)[0] for call in calls]
    assert differing([run(denoiser, op, [call], Numerics.EXACT)[0] for call in calls], alone) == [0.0] * 8
    for count in (2, 3, 4, 8):
        for chosen in (range(count), reversed(range(8 - count, 8))):  # other neighbours, other places
            numbers = list(chosen)
            together = run(denoiser, op, [calls[number] for number in numbers], Numerics.EXACT)
            assert differing(together, [alone[number] for number in numbers]) == [0.0] * count


def test_times_embedded_together_make_other_bits(denoiser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = forward.velocities
    calls = [sample("velocity", number) for number in range(4)]
    alone = [run(denoiser, "velocity", [call], Numerics.EXACT)[0] for call in calls]
    monkeypatch.setattr(
        "fv_wan_causal.denoiser.velocities",
        lambda module, chunks, times_together: plain(module, chunks, times_together=True),
    )
    assert max(differing(run(denoiser, "velocity", calls, Numerics.EXACT), alone)) > 0.0


def test_padded_keys_make_other_bits(denoiser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [sample("velocity", number) for number in range(4)]
    alone = [run(denoiser, "velocity", [call], Numerics.EXACT)[0] for call in calls]

    def padded(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        size = len(keys)
        keys, values = (F.pad(one, (0, 0, 0, 0, 0, 40 - size % 40)) for one in (keys, values))
        q, k, v = (one.unsqueeze(0).transpose(1, 2) for one in (query, keys, values))
        seen = torch.arange(len(keys)) < size
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen.expand(len(query), -1))
        return mixed[0].transpose(0, 1).flatten(1)

    monkeypatch.setattr(forward, "_attention", padded)
    assert max(differing(run(denoiser, "velocity", calls, Numerics.EXACT), alone)) > 0.0


@pytest.mark.parametrize("op", OPS)
def test_fast_is_near_the_reference(op: str, denoiser: Any) -> None:
    calls = [sample(op, number) for number in range(8)]
    reference = [run(denoiser, op, [call], Numerics.REFERENCE)[0] for call in calls]
    assert max(differing(run(denoiser, op, calls, Numerics.FAST), reference)) <= FORWARD_TOLERANCE


@pytest.mark.parametrize("op", OPS)
def test_what_comes_back_holds_its_own_memory_alone(op: str, denoiser: Any) -> None:
    for tensors in run(denoiser, op, [sample(op, 0), sample(op, 5)], Numerics.EXACT):
        for tensor in tensors:
            assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def keys(component: Any, numerics: Numerics, *calls: ResolvedCall) -> int:
    """How many forwards the calls take."""
    op = "text" if "text" in calls[0].rows else "velocity"
    owed = [replace(call, numerics=numerics) for call in calls]
    return len({component.batch_key(op, call) for call in owed})


def test_frames_of_other_sizes_do_not_share(denoiser: Any) -> None:
    calls = [sample("velocity", 0, frame) for frame in ((4, 4), (4, 6), (2, 8))]
    assert [keys(denoiser, numerics, *calls) for numerics in (Numerics.EXACT, Numerics.FAST)] == [2, 2]


def test_exact_calls_of_too_few_rows_run_alone(denoiser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk of one frame of one token beside one of three."""
    calls = [sample("velocity", number, (2, 2)) for number in (0, 1)]
    assert [keys(denoiser, numerics, *calls) for numerics in (Numerics.EXACT, Numerics.FAST)] == [2, 1]
    monkeypatch.setattr(LeastRows, "exact", lambda least: 1)
    alone = [run(denoiser, "velocity", [call], Numerics.EXACT)[0] for call in calls]
    assert max(differing(run(denoiser, "velocity", calls, Numerics.EXACT), alone)) > 0.0


def test_where_products_look_at_their_rows_exact_calls_run_alone(
    denoiser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeastRows, "exact", lambda least: None)
    for op in OPS:
        calls = [sample(op, number) for number in range(3)]
        assert [keys(denoiser, numerics, *calls) for numerics in (Numerics.EXACT, Numerics.FAST)] == [3, 1]


@pytest.fixture
def sharing() -> Iterator[Engine]:
    with Engine([TINY], device="cpu", gain=Always()) as made:
        yield made


def mix(ask: Callable[..., Request]) -> list[Request]:
    """Clips of several lengths and prompts, that go on from an image and from a clip, one of another size."""
    _, _, after_image, after_clip = probes(TINY)
    keep = ask().output
    return [
        ask(prompt="a red circle", seed=1, frames=33, size=(48, 32)),
        replace(after_image, output=keep),
        ask(prompt="grass", seed=5, frames=21, size=(32, 48)),
        replace(after_clip, prompt="a sea", output=keep),
        ask(prompt="another size", seed=6, frames=9, size=(32, 32)),
    ]


def staggered(engine: Engine, requests: Sequence[Request], numerics: Numerics, every: int) -> list[Job]:
    """The jobs, done: each begins so many rounds after the one before."""
    jobs = [engine.start(request, numerics=numerics) for request in requests]
    begun = 0
    while not all(job.done for job in jobs):
        begun += 1
        going = [job for job in jobs[: 1 + begun // every] if not job.done]
        advance(going)
    return jobs


def counted(engine: Engine) -> dict[str, tuple[int, int]]:
    """Forwards of the transformer and the calls in them, by op."""
    return {one.op: (one.forwards, one.rows) for one in engine.forwards() if one.component == "transformer"}


@pytest.mark.parametrize("numerics", [Numerics.EXACT, Numerics.FAST])
def test_clips_at_different_chunks_share_forwards(
    numerics: Numerics,
    sharing: Engine,
    engine: Engine,
    ask: Callable[..., Request],
    record_property: Callable[[str, object], None],
) -> None:
    requests = mix(ask)
    alone = [engine.run(replace(request, numerics=Numerics.EXACT)) for request in requests]
    jobs = staggered(sharing, requests, numerics, every=3)
    apart = []
    for job, clip in zip(jobs, alone, strict=True):
        with closing(job):
            mine = sharing.clip(job).tensors
            apart.append(float((mine["latent"] - clip.tensors["latent"]).abs().max()))
            if numerics is Numerics.EXACT:
                assert all(torch.equal(mine[name], tensor) for name, tensor in clip.tensors.items())
    record_property("largest difference of latents", max(apart))
    assert max(apart) <= (0.0 if numerics is Numerics.EXACT else CLIP_TOLERANCE)
    assert counted(engine)["velocity"] == (32, 32)
    assert counted(sharing) == {"text": (5, 5), "velocity": (21, 32), "commit": (8, 10)}
    assert not any(one.dependent for one in sharing.forwards())


def test_clips_that_begin_together_take_one_forward_a_step(
    sharing: Engine, ask: Callable[..., Request]
) -> None:
    requests = [ask(prompt="word " * seed, seed=seed, frames=21) for seed in range(1, 9)]
    results = sharing.run_many(requests, numerics="exact")
    assert all(result.ok for result in results)
    assert counted(sharing) == {"text": (1, 8), "velocity": (8, 64), "commit": (2, 16)}


def test_one_that_is_cancelled_midway_leaves_the_others_bits_alone(
    sharing: Engine, engine: Engine, ask: Callable[..., Request]
) -> None:
    requests = [
        ask(seed=seed, prompt="p" * seed, frames=frames) for seed, frames in ((1, 21), (2, 33), (3, 21))
    ]
    alone = [engine.run(replace(request, numerics=Numerics.EXACT)).tensors for request in requests]
    cancel = CancelScope()
    jobs = [
        sharing.start(request, numerics="exact", cancel=cancel if index == 1 else None)
        for index, request in enumerate(requests)
    ]
    for turn in range(200):
        if turn == 9:
            cancel.cancel()
        advance([job for job in jobs if not job.done])
    assert isinstance(jobs[1].error, Cancelled)
    for index in (0, 2):
        mine = sharing.clip(jobs[index]).tensors
        assert all(torch.equal(mine[name], tensor) for name, tensor in alone[index].items())
    for job in jobs:
        job.close()
