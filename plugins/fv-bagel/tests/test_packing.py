"""Samples that share a forward: under `exact` each has the bits it has alone, whoever its neighbours are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core import Engine, OutputSpec, Request
from fv_core.loop import ComponentOutput, ResolvedCall
from fv_core.loop.packing import LeastRows
from fv_core.request import Numerics

OPS = ("text_block", "latent_block", "vision_block", "velocity", "prefill_sample", "decode_sample")
PROMPT = "a cat in a red hat walks on the grass of a blue sea where the sun is"
WORDS = PROMPT.split()
AGAINST_REFERENCE = 1e-5
"""Of `exact` against `reference`, where a product has more rows than the reference gives it. Measured: 2e-6."""


@pytest.fixture
def model(mine: Any) -> Any:
    return mine.engine.instance("bagel/tiny").component("model")


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def run(model: Any, op: str, calls: Sequence[ResolvedCall], numerics: Numerics) -> list[list[Tensor]]:
    """Of each call everything that comes back, under one key."""
    calls = [replace(call, numerics=numerics) for call in calls]
    assert numerics is Numerics.REFERENCE or len({model.batch_key(op, call) for call in calls}) == 1
    outputs: list[ComponentOutput] = model.forward_batch(op, calls)
    return [[*one.output.tensors.values(), *tensors_of(one)] for one in outputs]


def tensors_of(output: ComponentOutput) -> list[Tensor]:
    return [item for content in output.caches for item in content or [] if isinstance(item, Tensor)]


def sample(model: Any, op: str, number: int) -> ResolvedCall:
    """A call unlike its neighbours in the lengths of context and rows, in temperature, grid and time."""
    text = model.words.block(" ".join(WORDS[number:] * (1 + number % 3)))
    past = model.forward_batch(
        "text_block",
        [ResolvedCall(rows={"ids": text[: 2 + 3 * number], "position": 0}, static={}, caches=([],))],
    )
    (context,) = past[0].caches
    high, wide = 1 + number % 3, 1 + number % 4
    drawn = {"temperature": (0.0, 0.7, 1.3)[number % 3], "uniform": number / 9}
    rows: dict[str, Any] = {
        "text_block": {"ids": text[: 1 + 2 * number]},
        "latent_block": {"latent": noise(number, 16, 2 * high, 2 * wide)},
        "vision_block": {"tokens": noise(number, 1 + 3 * number, 32)},
        "velocity": {"tokens": noise(number, high * wide, 64), "time": 1 - number / 9, "rows": high},
        "prefill_sample": {"tokens": text[: 1 + 2 * number], **drawn},
        "decode_sample": {"token": 10 + number, **drawn},
    }[op]
    own = [] if number == 1 and op != "decode_sample" else context
    return ResolvedCall(rows={**rows, "position": len(text)}, static={}, caches=(own,))


def differing(ones: Sequence[Sequence[Tensor]], others: Sequence[Sequence[Tensor]]) -> list[float]:
    """Of each sample the largest difference."""
    return [
        max(float((a.double() - b.double()).abs().max()) for a, b in zip(one, other, strict=True))
        for one, other in zip(ones, others, strict=True)
    ]


@pytest.mark.parametrize("op", OPS)
def test_samples_have_the_bits_they_have_alone(op: str, model: Any) -> None:
    calls = [sample(model, op, number) for number in range(8)]
    alone = [run(model, op, [call], Numerics.EXACT)[0] for call in calls]
    for count in (2, 3, 4, 8):
        for chosen in (range(count), reversed(range(8 - count, 8))):  # other neighbours, other places
            numbers = list(chosen)
            together = run(model, op, [calls[number] for number in numbers], Numerics.EXACT)
            assert differing(together, [alone[number] for number in numbers]) == [0.0] * count


@pytest.mark.parametrize(
    "op", [op for op in OPS if op != "vision_block"]
)  # which has three rows at the least
def test_few_rows_as_they_are_make_other_bits(op: str, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeastRows, "of", lambda least, calls: 1)
    calls = [sample(model, op, number) for number in range(4)]
    alone = [run(model, op, [call], Numerics.EXACT)[0] for call in calls]
    assert max(differing(run(model, op, calls, Numerics.EXACT), alone)) > 0.0


@pytest.mark.parametrize("op", OPS)
def test_exact_and_fast_are_near_the_reference(op: str, model: Any) -> None:
    calls = [sample(model, op, number) for number in range(8)]
    reference = [run(model, op, [call], Numerics.REFERENCE)[0] for call in calls]
    for numerics in (Numerics.EXACT, Numerics.FAST):
        apart = differing(run(model, op, calls, numerics), reference)
        assert max(apart) <= AGAINST_REFERENCE
        if numerics is Numerics.EXACT and op in ("text_block", "vision_block"):
            rows = [len(call.rows["ids" if op == "text_block" else "tokens"]) for call in calls]  # type: ignore[arg-type]
            framed = rows if op == "text_block" else [count + 2 for count in rows]
            assert all(far == 0.0 for far, count in zip(apart, framed, strict=True) if count >= 4)


def test_a_context_holds_its_own_memory_alone(model: Any) -> None:
    calls = [replace(sample(model, "text_block", number), caches=([],)) for number in range(1, 5)]
    for output in model.forward_batch("text_block", calls):
        for tensor in tensors_of(output):
            assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def test_what_cannot_be_shared_exactly_is_not(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (replace(sample(model, "text_block", number), numerics=Numerics.EXACT) for number in (2, 3))
    assert model.batch_key("text_block", one) == model.batch_key("text_block", other)
    assert model.batch_key("tokenize", one) != model.batch_key("tokenize", other)
    monkeypatch.setattr(LeastRows, "exact", lambda least: None)
    assert model.batch_key("text_block", one) != model.batch_key("text_block", other)
    one, other = (replace(call, numerics=Numerics.FAST) for call in (one, other))
    assert model.batch_key("text_block", one) == model.batch_key("text_block", other)


def mix(mine: Any, numerics: Numerics) -> list[Request]:
    """Questions with and without an image, images of two sizes with and without a thought, an edit."""
    asked = mine.request("vlm", numerics=numerics, output=OutputSpec(keep=("answer_tokens",)))
    drawn = mine.request("t2i_global", numerics=numerics, steps=3)
    return [
        asked,
        replace(asked, prompt="why", inputs=(), seed=3, params={"max_tokens": 9, "temperature": 1.5}),
        drawn,
        replace(drawn, prompt="a blue sea", seed=5, guidance=1.0, steps=2),
        replace(drawn, prompt="grass", size=None, params={**drawn.params, "think": True, "max_tokens": 5}),
        mine.request("edit", numerics=numerics, steps=3),
    ]


class Taken:
    """What the mixture runs, by op: its forwards and the samples in them, since it was asked last."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._before: dict[str, tuple[int, int]] = {}
        self()

    def __call__(self) -> tuple[Counter[str], Counter[str]]:
        now = {
            one.op: (one.forwards, one.rows) for one in self._engine.forwards() if one.component == "model"
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
def test_requests_of_all_kinds_share_forwards(numerics: Numerics, mine: Any) -> None:
    taken, requests = Taken(mine.engine), mix(mine, numerics)
    alone = [mine.engine.run(request) for request in requests]
    forwards, samples = taken()
    assert forwards["velocity"] == sum(request.steps or 0 for request in requests)  # branches share one
    together = mine.engine.run_many(list(reversed(requests)))[::-1]
    shared, same = taken()
    for op in ("velocity", "prefill_sample", "decode_sample"):  # what is encoded once is kept for the others
        assert (same[op], shared[op] < forwards[op]) == (samples[op], True)
    assert not any(one.dependent for one in mine.engine.forwards())
    for result, clip in zip(together, alone, strict=True):
        assert result.ok, result.error
        if numerics is Numerics.EXACT:
            assert result.clip.text == clip.text
            assert all(torch.equal(result.clip.tensors[name], clip.tensors[name]) for name in clip.tensors)
        elif "latent" in clip.tensors and not clip.text:
            assert float((result.clip.tensors["latent"] - clip.tensors["latent"]).abs().max()) <= 1e-4


def test_a_step_of_all_requests_is_one_forward(mine: Any) -> None:
    taken, exact = Taken(mine.engine), Numerics.EXACT
    drawn = mine.request("t2i_global", numerics=exact, steps=3)
    mine.engine.run_many([replace(drawn, seed=seed, prompt=" ".join(WORDS[:seed])) for seed in range(1, 9)])
    forwards, samples = taken()
    assert (forwards["velocity"], samples["velocity"]) == (3, 8 * 3 * 2)  # with and without the text
    asked = mine.request("vlm", numerics=exact, inputs=(), output=OutputSpec(keep=("answer_tokens",)))
    results = mine.engine.run_many([replace(asked, prompt=word) for word in WORDS[:8]])
    forwards, samples = taken()
    written = [len(result.clip.tensors["answer_tokens"]) for result in results]
    assert (forwards["prefill_sample"], forwards["decode_sample"]) == (1, max(written) - 1)
    assert samples["decode_sample"] == sum(written) - 8
