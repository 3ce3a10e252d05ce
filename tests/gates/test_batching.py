"""The batching gate: forwards are counted, only what is alike shares one, and mixes equal their solo runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core import Clip, Engine, Request, derive
from fv_core.errors import FvError
from fv_core.loop import ComponentCall, ComponentOutput
from fv_core.plugins import find_card
from fv_core.request import EVERYTHING, Numerics, OutputSpec
from fv_core.runtime.execution.calls import Work
from fv_core.runtime.execution.executor import execute
from fv_core.runtime.execution.sharing import same_bits
from fv_core.runtime.gain import Always
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.job import Job, advance
from fv_core.runtime.records.probes import probes
from fv_core.testing.tiny import CARD, returned, tensor

TWO = derive(CARD, components={**CARD.components, "other": CARD.components["denoiser"]})
TWIN = derive(TWO, model_id="testing/twin")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def step_forwards(requests: int, limit: int) -> tuple[list[int], int]:
    """Forwards of the denoiser in each step of so many guided requests, and its largest."""
    counts: list[int] = []
    with Engine([CARD], device="cpu", gain=Always(), max_batch=limit) as engine, ExitStack() as stack:
        asked = [
            Request(prompt=f"circle {n}", seed=n, steps=3, frames=5, size=(16, 16)) for n in range(requests)
        ]
        jobs = [stack.enter_context(closing(engine.start(one))) for one in asked]
        while not all(job.done for job in jobs):
            denoising = jobs[0].run.current.id == "denoise"
            before = sum(one.forwards for one in engine.forwards() if one.op == "velocity")
            advance(jobs)
            after = sum(one.forwards for one in engine.forwards() if one.op == "velocity")
            counts += [after - before] if denoising else []
        return counts, max(one.largest for one in engine.forwards() if one.op == "velocity")


@pytest.mark.parametrize(("requests", "limit"), [(8, 16), (8, 6), (8, 4), (8, 1), (1, 16), (3, 4), (9, 16)])
def test_a_step_takes_as_many_forwards_as_its_rows_fill(requests: int, limit: int) -> None:
    rows = 2 * requests
    assert step_forwards(requests, limit) == ([-(-rows // limit)] * 3, min(rows, limit))


@dataclass(kw_only=True)
class Pair:
    """The denoising steps of two requests, whose only differences are seed and prompt, and what runs of them."""

    works: list[Work]
    twin: ModelInstance
    sizes: list[int] = field(default_factory=list)

    def run(self, *works: Work) -> list[int]:
        """How many rows each forward has."""
        self.sizes.clear()
        failed = [one for one in execute(works) if isinstance(one, FvError)]
        assert not failed, failed
        return self.sizes


@pytest.fixture
def pair() -> Iterator[Pair]:
    """On one engine with two models that have two denoisers each; any operation of them returns what it is given."""
    with Engine([TWO, TWIN], device="cpu", gain=Always()) as engine, ExitStack() as stack:
        made = Pair(works=[], twin=engine.instance(TWIN.model_id))
        for seed in range(2):
            job = engine.start(
                Request(
                    prompt=f"circle {seed}", seed=seed, steps=2, size=(16, 16), frames=5, guidance=1.0,
                    model=TWO.model_id,
                )
            )  # fmt: skip
            stack.enter_context(closing(job))
            while job.run.current.id != "denoise":
                job.step()
            work = job.work()
            assert work is not None
            made.works.append(work)

        def seen(op: str, calls: list[Any]) -> list[ComponentOutput]:
            made.sizes.append(len(calls))
            return [returned(velocity=tensor(call, "latent").clone()) for call in calls]

        for model in (TWO, TWIN):
            for name in ("denoiser", "other"):
                part: Any = engine.instance(model.model_id).component(name)
                part.forward_batch = seen
        yield made


def with_call(work: Work, **fields: Any) -> Work:
    (call,) = work.plan.calls
    return replace(work, plan=replace(work.plan, calls=(replace(call, **fields),)))


def with_row(work: Work, name: str, change: Callable[[Any], Any]) -> Work:
    rows = call_of(work).rows
    return with_call(work, rows={**rows, name: change(rows[name])})


def call_of(work: Work) -> ComponentCall:
    (call,) = work.plan.calls
    return call


def longer(latent: Tensor) -> Tensor:
    return torch.cat([latent, latent], dim=1)


FLIPS: Mapping[str, Callable[[Work, Pair], Work]] = {
    "numerics": lambda work, pair: replace(work, numerics=Numerics.FAST),
    "instance": lambda work, pair: replace(work, instance=pair.twin),
    "component": lambda work, pair: with_call(work, component="other"),
    "op": lambda work, pair: with_call(work, op="noise"),
    "static value": lambda work, pair: with_call(work, static={"part": 1}),
    "static type": lambda work, pair: with_call(work, static={"part": False}),
    "shape": lambda work, pair: with_row(work, "latent", longer),
    "precision": lambda work, pair: with_row(work, "latent", Tensor.bfloat16),
    "kind of row": lambda work, pair: with_row(work, "timestep", float),
    "rows": lambda work, pair: with_call(work, rows={**call_of(work).rows, "more": 1}),
}
"""What is flipped, each alone, of calls that otherwise share a forward."""

KEPT: Mapping[str, Callable[[Work, Pair], Work]] = {
    "nothing": lambda work, pair: work,
    "timestep": lambda work, pair: with_row(work, "timestep", lambda timestep: timestep - 1),
    "branch": lambda work, pair: with_call(work, branch="uncond"),
    "step": lambda work, pair: replace(work, plan=replace(work.plan, step=1, sigma=0.5)),
}
"""What calls that share a forward may differ in, beside prompt and seed."""


@pytest.mark.parametrize("flip", [*FLIPS, *KEPT])
def test_calls_share_a_forward_only_if_all_of_the_batch_key_is_equal(flip: str, pair: Pair) -> None:
    one, other = (with_call(work, static={"part": 0}) for work in pair.works)
    pair.run(one, other)  # the check of the first forward
    assert pair.run(one, other) == [2]
    changed = {**FLIPS, **KEPT}[flip](other, pair)
    assert pair.run(one, changed) == ([1, 1] if flip in FLIPS else [2])


MODELS = ("bagel/tiny", "cosmos3/tiny", "ltx2/tiny", "ltx2/tiny-base", "wan-causal/tiny", "wan21/micro")
FEW = {"wan21/micro": 3}
"""Mixes of those that run fast, where not at full counts; of the others one."""
PROMPTS = (
    "a dog",
    "a red circle moving right over a green square",
    "two blue triangles turn, slowly, in the rain",
)


@dataclass(kw_only=True)
class Mixes:
    """Draws mixes of requests on one engine, and runs them together and each alone."""

    engine: Engine
    solo: dict[str, Clip] = field(default_factory=dict)

    def draw(self, seed: int, model: str) -> list[Request]:
        rng = random.Random(f"{seed} {model}")
        return [self._one(rng, model) for _ in range(rng.choice([3, 4]))]

    def _one(self, rng: random.Random, model: str) -> Request:
        card = find_card(model)
        base = rng.choice(probes(card)[:2])
        lowest, usual = card.limits.guidance[0], base.guidance
        fixed = base.steps is None or card.recipe.steps_fixed
        return replace(
            base,
            prompt=rng.choice(PROMPTS),
            seed=rng.randrange(3),
            steps=base.steps if fixed else max(card.limits.steps[0], rng.choice([1, 2, 3])),
            guidance=None if usual is None else rng.choice([lowest, usual]),
            numerics=Numerics.EXACT,
            output=OutputSpec(keep=(EVERYTHING,)),
        )

    def together(self, seed: int, requests: list[Request]) -> list[Job]:
        """The jobs, done: each arrives at a round of its own, and one of them is cancelled at a round."""
        rng = random.Random(seed)
        arrivals = [0, *(rng.randrange(4) for _ in requests[1:])]
        cancelled, at = rng.randrange(1, len(requests)), rng.randrange(2, 7)
        jobs: dict[int, Job] = {}
        rounds = 0
        while len(jobs) < len(requests) or not all(job.done for job in jobs.values()):
            for index, arrival in enumerate(arrivals):
                if arrival == rounds:
                    jobs[index] = self.engine.start(requests[index])
            if rounds == at and cancelled in jobs:
                jobs[cancelled].run.cancel.cancel()
            advance([job for job in jobs.values() if not job.done])
            rounds += 1
        return [jobs[index] for index in range(len(requests))]

    def alone(self, request: Request) -> Clip:
        if (known := repr(request)) not in self.solo:
            self.solo[known] = self.engine.run(request)
        return self.solo[known]

    def differing(self, seed: int, requests: list[Request]) -> tuple[list[int], int]:
        """Which requests of a mix differ from their solo runs in any bit, and how many were compared."""
        wrong, compared = [], 0
        for index, job in enumerate(self.together(seed, requests)):
            with closing(job):
                if job.error is not None and job.error.code == "FV510":
                    continue
                compared += 1
                if not same(self.engine.clip(job), self.alone(requests[index])):
                    wrong.append(index)
        return wrong, compared


def same(one: Clip, other: Clip) -> bool:
    """Whether all that two runs came to is equal bit for bit."""
    tensors = one.tensors.keys() == other.tensors.keys() and all(
        same_bits(tensor, other.tensors[name]) for name, tensor in one.tensors.items()
    )
    return tensors and one.frames.tobytes() == other.frames.tobytes() and one.text == other.text


@pytest.fixture(scope="module")
def mixes() -> Iterator[Mixes]:
    with Engine(MODELS, device="cpu", gain=Always()) as engine:
        yield Mixes(engine=engine)


@pytest.mark.parametrize("model", MODELS)
def test_mixes_equal_their_solo_runs_bit_for_bit(
    model: str, mixes: Mixes, soak: bool, record_property: Callable[[str, object], None]
) -> None:
    """Staggered arrival, other steps, guidance, prompts and seeds, and a neighbour that is cancelled."""
    count, compared = 34 if soak else FEW.get(model, 1), 0
    for seed in range(count):
        requests = mixes.draw(seed, model)
        wrong, looked = mixes.differing(seed, requests)
        assert wrong == [], f"mix {seed}: {[requests[index] for index in wrong]}"
        compared += looked
    shared = [one for one in mixes.engine.forwards() if one.model == model and one.largest > 1]
    record_property("mixes that equal their solo runs", count)
    record_property("requests compared", compared)
    for one in shared:
        record_property(f"rows per forward of {one.component}.{one.op}", round(one.rows / one.forwards, 2))
    dependent = [f"{one.component}.{one.op}" for one in mixes.engine.forwards() if one.dependent]
    assert dependent == []
    assert shared


def test_control_a_single_bit_of_a_neighbour_is_seen(mixes: Mixes) -> None:
    request = mixes.draw(0, "wan21/micro")[0]
    clip, again = mixes.alone(request), mixes.engine.run(request)
    assert same(clip, again)
    again.tensors["latent"].view(torch.int32).view(-1)[0] ^= 1
    assert not same(clip, again)
