"""The window of keys and values: what is kept, and that it cannot be made again from the chunks it shows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from copy import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core import Engine, Request
from fv_core.cache import CacheContent, CacheRef, ValueRef
from fv_core.card import ModelCard, derive
from fv_core.loop import CacheMode, LoopEnv, ResolvedCall, StepResult, WorkPlan
from fv_core.loop.chunk_rollout import ChunkRollout, ChunkState
from fv_core.loop.driver import advance
from fv_core.request import Numerics
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.runtime.requests.resolve import resolve
from fv_wan_causal import forward
from fv_wan_causal.card import CHUNK, TINY

FRAME = 4  # tokens of a latent frame at 32x32
SINK, WINDOW = 1, 7
CHUNKS, DONE = 9, 8


class Rollout:
    """The rollout alone, over the real component and caches of the test's own."""

    def __init__(self, card: ModelCard) -> None:
        instance = ModelInstance(
            card, device=torch.device("cpu"), dtype=torch.float32, folder=None, offload=Offload.NONE
        )
        self.component = instance.component("transformer")
        self.loop = ChunkRollout(card, card.loops["rollout"])
        request = Request(prompt="p", size=(32, 32), frames=4 * CHUNK * CHUNKS - 3, seed=1)
        env = LoopEnv(device=torch.device("cpu"), scope="r1/rollout", owner="r1")
        self.state: ChunkState = self.loop.init(
            resolve(request, card, Numerics.EXACT), {"cond": ValueRef(hash="prompt")}, env
        )
        self.contents: dict[CacheRef, CacheContent] = {}
        self._text = torch.randn(512, 32, generator=torch.Generator("cpu").manual_seed(4))

    def fork(self) -> Rollout:
        """The same run, to be gone on with in another way."""
        other = copy(self)
        other.contents = dict(self.contents)
        return other

    @torch.no_grad()
    def until_chunk(self, chunk: int) -> None:
        while self.state.chunk < chunk:
            plan = self.loop.next(self.state)
            assert isinstance(plan, WorkPlan)
            self.state = advance(self.loop, self.state, self._answer(plan))

    def _answer(self, plan: WorkPlan) -> StepResult:
        (call,) = plan.calls
        rows: Any = {
            name: self._text if isinstance(row, ValueRef) else row for name, row in call.rows.items()
        }
        contents = tuple(list(self.contents.get(use.ref, [])) for use in call.caches)
        (out,) = self.component.forward_batch(
            call.op, [ResolvedCall(rows=rows, static=call.static, caches=contents)]
        )
        refs = []
        for use, content in zip(call.caches, out.caches, strict=True):
            assert (content is None) is (use.mode is CacheMode.READ)
            ref = use.ref if content is None else replace(use.ref, version=use.ref.version + 1)
            if content is not None:
                self.contents[ref] = content
            refs.append(ref)
        return StepResult(outputs=(out.output,), caches=(tuple(refs),))

    @property
    def window(self) -> list[Tensor]:
        return [part for part in self.contents[self.state.window] if isinstance(part, Tensor)]

    @property
    def latent(self) -> Tensor:
        return torch.cat(self.state.done, dim=1)

    @torch.no_grad()
    def rebuild(self, chunks: tuple[int, ...]) -> bool:
        """Makes the window again by committing these finished chunks alone; whether it has the same bits."""
        content: CacheContent = []
        for chunk in chunks:
            call = ResolvedCall(
                rows={
                    "latent": self.state.done[chunk],
                    "timestep": 0.0,
                    "start": chunk * CHUNK,
                    "sink": SINK,
                    "recent": WINDOW - SINK - CHUNK,
                    "times": CHUNK,
                },
                static={},
                caches=(content, self.contents[self.state.text]),
            )
            (out,) = self.component.forward_batch("commit", [call])
            assert out.caches[0] is not None
            content = out.caches[0]
        was, self.contents[self.state.window] = self.window, content
        return all(torch.equal(one, other) for one, other in zip(was, self.window, strict=True))


def of_two_layers() -> ModelCard:
    transformer = TINY.components["transformer"]
    config = {**transformer.config, "num_layers": 2}
    components = {**TINY.components, "transformer": replace(transformer, config=config, parameters=48_032)}
    return derive(TINY, model_id="wan-causal/two-layers", components=components)


@pytest.fixture(scope="module")
def begun() -> Rollout:
    """The tiny card's rollout before its last chunk."""
    return _begun(TINY)


def _begun(card: ModelCard) -> Rollout:
    run = Rollout(card)
    run.until_chunk(DONE)
    return run


def outcome(begun: Rollout, chunks: tuple[int, ...]) -> tuple[bool, bool]:
    """Whether a window made again from `chunks` has the same bits, and whether the chunk after it has."""
    whole, other = begun.fork(), begun.fork()
    same = other.rebuild(chunks)
    for run in (whole, other):
        run.until_chunk(CHUNKS)
    return same, torch.equal(other.latent, whole.latent)


def last(count: int) -> tuple[int, ...]:
    """The first chunk, which holds the sink, and the last `count` of those that are done."""
    return (0, *range(DONE - count, DONE))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_window_made_again_from_too_few_chunks_is_caught(count: int, begun: Rollout) -> None:
    """It shows the last two; but what their keys were computed from has been evicted."""
    assert count * CHUNK >= WINDOW - SINK
    assert outcome(begun, last(count)) == (False, False)


def test_one_chunk_too_few_shows_in_the_window(begun: Rollout) -> None:
    assert len(last(6)) == DONE - 1
    same, _ = outcome(begun, last(6))
    assert not same


def test_window_made_again_from_all_chunks_is_the_same(begun: Rollout) -> None:
    assert outcome(begun, tuple(range(DONE))) == (True, True)


def test_a_model_of_two_layers_would_not_tell() -> None:
    """Keys of layer n depend on n chunks before: that is why the tiny card has six."""
    assert outcome(_begun(of_two_layers()), last(3)) == (True, True)


@pytest.mark.parametrize("chunk", [1, 2])
def test_resumed_run_has_the_bits_of_one_that_was_not_interrupted(
    chunk: int, engine: Engine, ask: Callable[..., Request]
) -> None:
    """A snapshot stores the window rather than the calls that made it."""
    request = ask(size=(16, 16))
    whole = engine.run(request).tensors
    with closing(engine.start(request)) as job:
        while "rollout" not in job.run.frontier or job.run.frontier["rollout"].state is None:
            job.step()
        while job.run.frontier["rollout"].state.chunk < chunk:
            job.step()
        taken = engine.snapshot(job)
    with Engine([TINY], device="cpu") as other, closing(other.resume(taken)) as job:
        while not job.done:
            job.step()
        resumed = other.clip(job).tensors
    assert all(torch.equal(resumed[name], tensor) for name, tensor in whole.items())


def test_window_holds_the_sink_and_the_last_frames_and_no_more() -> None:
    run, sizes, sinks = Rollout(TINY), [], []
    for chunk in range(1, CHUNKS + 1):
        run.until_chunk(chunk)
        assert len(run.window) == 12  # keys and values of six layers
        assert len({part.shape for part in run.window}) == 1
        sizes.append(len(run.window[0]) // FRAME)
        sinks.append(run.window[0][: SINK * FRAME])
    assert all(torch.equal(sink, sinks[0]) for sink in sinks)
    assert sizes == [3, 6, 7, 7, 7, 7, 7, 7, 7]


def test_only_the_forward_of_a_finished_chunk_changes_the_window(
    engine: Engine, ask: Callable[..., Request]
) -> None:
    with closing(engine.start(ask(frames=21, size=(16, 16)))) as job:
        seen = []
        while not job.done:
            run = job.run.frontier.get("rollout")
            if run is not None and run.state is not None:
                seen.append((run.state.turn, run.state.window.version - run.state.chunk))
            job.step()
    assert {behind for _, behind in seen} == {0}
    assert {turn for turn, _ in seen} == {0, 1, 2, 3, 4}


def test_keys_and_values_of_the_prompt_are_computed_once(engine: Engine, ask: Callable[..., Request]) -> None:
    module: Any = engine.instance(TINY.model_id).component("transformer").module
    computed: list[int] = []
    hooks = [
        block.attn2.to_k.register_forward_hook(lambda module, args, out: computed.append(1))
        for block in module.blocks
    ]
    engine.run(ask(frames=21, size=(16, 16)))
    for hook in hooks:
        hook.remove()
    assert len(computed) == 6


def test_angles_are_those_of_the_absolute_frame() -> None:
    both = forward.rotary(16, 0, 6, 2, 2, device=torch.device("cpu"))
    later = forward.rotary(16, 3, 3, 2, 2, device=torch.device("cpu"))
    assert both.dtype == torch.complex128
    assert torch.equal(both[3 * FRAME :], later)
    assert not torch.equal(both[: 3 * FRAME], later)
