"""Samples that share a forward: under `exact` each has the bits it has alone, whoever its neighbours are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core import Engine, OutputSpec, Request
from fv_core.loop import ComponentOutput, ResolvedCall
from fv_core.loop.packing import LeastRows
from fv_core.request import Numerics, TaskType

OPS = ("text_kv", "prefill_sample", "decode_sample", "velocities")
PROMPT = "the robot arm puts a red cup on the table and then it waits"
WORDS = PROMPT.split()
AGAINST_REFERENCE = 1e-5
"""Of `exact` against `reference`, where a product has more rows than the reference gives it. Measured: 8e-7."""


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def transformer(mine: Any) -> Any:
    return mine.instance.component("transformer")


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def run(component: Any, op: str, calls: Sequence[ResolvedCall], numerics: Numerics) -> list[list[Tensor]]:
    """Of each call everything that comes back, under one key."""
    calls = [replace(call, numerics=numerics) for call in calls]
    assert numerics is Numerics.REFERENCE or len({component.batch_key(op, call) for call in calls}) == 1
    outputs: list[ComponentOutput] = component.forward_batch(op, calls)
    return [[*one.output.tensors.values(), *tensors_of(one)] for one in outputs]


def tensors_of(output: ComponentOutput) -> list[Tensor]:
    return [item for content in output.caches for item in content or [] if isinstance(item, Tensor)]


def sample(component: Any, op: str, number: int) -> ResolvedCall:
    """A call unlike its neighbours in the lengths of prompt and rows, in temperature, size and modalities."""
    tokens = torch.randint(0, 300, (30,), generator=torch.Generator().manual_seed(number))
    if op == "text_kv":
        return ResolvedCall(rows={"tokens": tokens[: 1 + 2 * number]}, static={}, caches=([],))
    prompt = ResolvedCall(rows={"tokens": tokens[: 3 + 2 * number]}, static={}, caches=([],))
    (context,) = component.forward_batch("text_kv", [prompt])[0].caches
    drawn = {
        "temperature": (0.0, 0.7, 1.3)[number % 3],
        "uniform": number / 9,
        "position": 3 + 2 * number,
    }
    if op == "prefill_sample":
        return ResolvedCall(rows={"tokens": tokens[: 1 + number], **drawn}, static={}, caches=(context,))
    if op == "decode_sample":
        return ResolvedCall(rows={"token": 10 + number, **drawn}, static={}, caches=(context,))
    return ResolvedCall(rows=evaluation(number), static={}, caches=(context,))


def evaluation(number: int) -> dict[str, Any]:
    """Of eight, the first is one token, the second has sound, the third actions, some have frames given."""
    height, width = (2, 2) if number == 0 else (2 * (1 + number // 2), 2 + number)
    rows: dict[str, Any] = {
        "video": noise(number, 16, 1 + number % 3, height, width),
        "timestep": 990 - 100 * number,
        "fps": 8.0 + number,
        "clean": number % 3,
    }
    if number % 3 == 1:
        rows["sound"] = noise(number, 4, 3 + number)
    if number % 3 == 2:
        rows |= {"action": noise(number, 8, 12), "clean_actions": 0 if number == 2 else 8, "domain": "umi"}
    return rows


def differing(ones: Sequence[Sequence[Tensor]], others: Sequence[Sequence[Tensor]]) -> list[float]:
    """Of each sample the largest difference."""
    return [
        max(float((a.double() - b.double()).abs().max()) for a, b in zip(one, other, strict=True))
        for one, other in zip(ones, others, strict=True)
    ]


@pytest.mark.parametrize("op", OPS)
def test_samples_have_the_bits_they_have_alone(op: str, transformer: Any) -> None:
    calls = [sample(transformer, op, number) for number in range(8)]
    alone = [run(transformer, op, [call], Numerics.EXACT)[0] for call in calls]
    for count in (2, 3, 4, 8):
        for chosen in (range(count), reversed(range(8 - count, 8))):  # other neighbours, other places
            numbers = list(chosen)
            together = run(transformer, op, [calls[number] for number in numbers], Numerics.EXACT)
            assert differing(together, [alone[number] for number in numbers]) == [0.0] * count


@pytest.mark.parametrize("op", OPS)
def test_few_rows_as_they_are_make_other_bits(
    op: str, transformer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeastRows, "of", lambda least, calls: 1)
    calls = [sample(transformer, op, number) for number in range(4)]
    alone = [run(transformer, op, [call], Numerics.EXACT)[0] for call in calls]
    assert max(differing(run(transformer, op, calls, Numerics.EXACT), alone)) > 0.0


@pytest.mark.parametrize("op", OPS)
def test_exact_and_fast_are_near_the_reference(op: str, transformer: Any) -> None:
    calls = [sample(transformer, op, number) for number in range(8)]
    reference = [run(transformer, op, [call], Numerics.REFERENCE)[0] for call in calls]
    for numerics in (Numerics.EXACT, Numerics.FAST):
        apart = differing(run(transformer, op, calls, numerics), reference)
        assert max(apart) <= AGAINST_REFERENCE
        if op in ("text_kv", "velocities"):
            assert apart[2:] == [0.0] * 6  # which have four tokens and more


def test_a_cache_holds_its_own_memory_alone(transformer: Any) -> None:
    calls = [sample(transformer, "text_kv", number) for number in range(4)]
    for output in transformer.forward_batch("text_kv", calls):
        for tensor in tensors_of(output):
            assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def test_what_cannot_be_shared_exactly_is_not(transformer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [sample(transformer, "text_kv", number) for number in (2, 3)]

    def keys(op: str, numerics: Numerics) -> int:
        alike = [replace(call, numerics=numerics) for call in calls]
        return len({transformer.batch_key(op, call) for call in alike})

    assert (keys("text_kv", Numerics.EXACT), keys("question", Numerics.EXACT)) == (1, 2)
    monkeypatch.setattr(LeastRows, "exact", lambda least: None)
    assert (keys("text_kv", Numerics.EXACT), keys("text_kv", Numerics.FAST)) == (2, 1)


def mix(case_of: Any, numerics: Numerics) -> list[Request]:
    """Questions, images and clips of several sizes, with sound, without guidance, and with a thought first."""
    asked: dict[str, Any] = {
        "task": TaskType.QA,
        "numerics": numerics,
        "output": OutputSpec(keep=("answer_tokens",)),
    }
    cases = [
        case_of(task=TaskType.T2I, steps=3),
        case_of(
            task=TaskType.T2I, steps=4, size=(48, 32), prompt="grass", guidance=1.0, negative=None, seed=3
        ),
        case_of(frames=5, steps=3, fps=7.0, params={"audio": True}),
        case_of(task=TaskType.T2I, steps=2, params={"think": True, "max_tokens": 5}),
    ]
    return [
        Request(prompt="why", seed=1, params={"max_tokens": 9}, **asked),
        Request(prompt=PROMPT, seed=2, params={"max_tokens": 7, "temperature": 1.5}, **asked),
        *(case.request(numerics=numerics) for case in cases),
    ]


class Taken:
    """What the transformer runs, by op: its forwards and the samples in them, since it was asked last."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before: dict[str, tuple[int, int]] = {}
        self()

    def __call__(self) -> tuple[Counter[str], Counter[str]]:
        now = {
            one.op: (one.forwards, one.rows)
            for one in self._engine.forwards()
            if one.component == "transformer"
        }
        found = {
            op: [count - old for count, old in zip(counts, self._before.get(op, (0, 0)), strict=True)]
            for op, counts in now.items()
        }
        self._before = now
        return (
            Counter({op: count for op, (count, _) in found.items()}),
            Counter({op: count for op, (_, count) in found.items()}),
        )


@pytest.mark.parametrize("numerics", [Numerics.EXACT, Numerics.FAST])
def test_requests_of_all_kinds_share_forwards(numerics: Numerics, mine: Any, case_of: Any) -> None:
    taken, requests = Taken(mine.engine), mix(case_of, numerics)
    alone = [mine.engine.run(request) for request in requests]
    forwards, samples = taken()
    assert forwards["velocities"] == sum(request.steps or 0 for request in requests)  # branches share one
    together = mine.engine.run_many(list(reversed(requests)))[::-1]
    shared, same = taken()
    for op in (
        "velocities",
        "prefill_sample",
        "decode_sample",
    ):  # what is encoded once is kept for the others
        assert (same[op], shared[op] < forwards[op]) == (samples[op], True)
    assert not any(one.dependent for one in mine.engine.forwards())
    for result, clip in zip(together, alone, strict=True):
        assert result.ok, result.error
        if numerics is Numerics.EXACT:
            assert result.clip.text == clip.text
            assert all(torch.equal(result.clip.tensors[name], clip.tensors[name]) for name in clip.tensors)
        elif "latent" in clip.tensors and not clip.text:
            assert float((result.clip.tensors["latent"] - clip.tensors["latent"]).abs().max()) <= 1e-4


def test_a_step_of_all_requests_is_one_forward(mine: Any, case_of: Any) -> None:
    taken, exact = Taken(mine.engine), Numerics.EXACT
    drawn = case_of(task=TaskType.T2I, steps=3).request(numerics=exact)
    mine.engine.run_many([replace(drawn, seed=seed, prompt=" ".join(WORDS[:seed])) for seed in range(1, 9)])
    forwards, samples = taken()
    assert (forwards["velocities"], samples["velocities"]) == (3, 8 * 3 * 2)
    asked = mix(case_of, exact)[0]
    results = mine.engine.run_many([replace(asked, prompt=word) for word in WORDS[:8]])
    forwards, samples = taken()
    written = [len(result.clip.tensors["answer_tokens"]) for result in results]
    assert (forwards["prefill_sample"], forwards["decode_sample"]) == (1, max(written) - 1)
    assert samples["decode_sample"] == sum(written) - 8
