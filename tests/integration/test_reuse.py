"""What depends on a prompt or an input alone is computed once by every model, and nobody's bits change."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image

from fv_core import Engine, Request
from fv_core.loop import Component
from fv_core.media import Clip
from fv_core.program import InputSpec
from fv_core.request import EVERYTHING, Modality, ModalPart, OutputSpec, Size, TaskType
from fv_core.runtime.records.samples import sample

ALL = OutputSpec(keep=(EVERYTHING,))
IMAGE = sample(InputSpec(modality=Modality.IMAGE), Size(64, 64), 1)
THINKS = Request(
    model="bagel/tiny",
    prompt="a red circle",
    size=(64, 64),
    steps=2,
    params={"think": True, "max_tokens": 4},
    output=ALL,
)
REQUESTS: dict[str, tuple[Request, set[str]]] = {
    "bagel": (THINKS, {"model.tokenize", "model.text_block"}),
    "bagel, a question": (
        Request(
            model="bagel/tiny", task=TaskType.QA, prompt="what is it?", inputs=(IMAGE,), params={"max_tokens": 4},
            output=ALL,
        ),
        {"model.tokenize", "model.text_block", "vision.encode", "model.vision_block"},
    ),
    "cosmos3": (
        Request(model="cosmos3/tiny", prompt="a red circle", size=(64, 32), frames=5, steps=2, output=ALL),
        {"transformer.prompt", "transformer.text_kv"},
    ),
    "ltx2": (Request(model="ltx2/tiny", prompt="a red circle", frames=9, output=ALL), {"text.encode"}),
    "wan-causal": (
        Request(model="wan-causal/tiny", prompt="a red circle", frames=9, output=ALL),
        {"text.encode", "transformer.text"},
    ),
    "wan21": (
        Request(model="wan21/micro", prompt="a red circle", size=(16, 16), frames=5, steps=2, output=ALL),
        {"text.encode"},
    ),
}  # fmt: skip
"""A request of each model, and what its samples have in common."""

MODELS = tuple(dict.fromkeys(str(request.model) for request, _ in REQUESTS.values()))


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def plain(one_thread: None) -> Iterator[Engine]:
    with Engine(MODELS, device="cpu", reuse=False) as engine:
        yield engine


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(MODELS, device="cpu") as engine:
        yield engine


def counted(engine: Engine, model: str, patch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the calls that the model's components compute from here on."""
    calls: Counter[str] = Counter()
    instance = engine.instance(model)

    def watched(name: str, component: Component) -> Callable[..., Any]:
        forward = component.forward_batch

        def count(op: str, batch: Sequence[Any]) -> Any:
            calls[f"{name}.{op}"] += len(batch)
            return forward(op, batch)

        return count

    for name in instance.card.components:
        component = instance.component(name)
        patch.setattr(component, "forward_batch", watched(name, component))
    return calls


def same(one: Clip, other: Clip) -> bool:
    return one.text == other.text and all(
        torch.equal(tensor, other.tensors[name]) for name, tensor in one.tensors.items()
    )


@pytest.mark.parametrize("name", REQUESTS)
def test_a_second_sample_computes_nothing_of_what_samples_have_in_common(
    name: str, engine: Engine, plain: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, common = REQUESTS[name]
    calls = counted(engine, str(request.model), monkeypatch)
    engine.run(replace(request, seed=1))
    assert common <= calls.keys(), calls
    calls.clear()
    second = engine.run(replace(request, seed=2))
    assert calls, "its own part is computed"
    if name != "bagel":  # reads what it has thought, which another seed makes another
        assert not common & calls.keys(), calls
    assert same(second, plain.run(replace(request, seed=2)))
    held = engine.counters()
    assert (held.requests, held.values, held.caches, held.cache_bytes) == (0, 0, 0, 0)


@pytest.mark.parametrize("name", REQUESTS)
def test_samples_side_by_side_come_to_the_bits_of_those_that_share_nothing(
    name: str, engine: Engine, plain: Engine
) -> None:
    samples = [replace(REQUESTS[name][0], seed=seed) for seed in (1, 2)]
    for result, request in zip(engine.run_many(samples), samples, strict=True):
        assert result.clip is not None, result.error
        assert same(result.clip, plain.run(request))


def test_prompts_that_follow_one_instruction_share_it_and_nothing_behind_it(
    engine: Engine, plain: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BAGEL tells its instructions in a block of their own, which every prompt then goes on from."""
    calls = counted(engine, "bagel/tiny", monkeypatch)
    engine.run(replace(THINKS, seed=1))
    blocks = calls["model.text_block"]
    calls.clear()
    other = replace(THINKS, seed=1, prompt="a blue square")
    clip = engine.run(other)
    assert calls["model.text_block"] == blocks - 1
    assert same(clip, plain.run(other))


def test_a_text_that_follows_another_image_is_read_anew(
    engine: Engine, plain: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same words at the same position, behind something else."""
    asked = replace(REQUESTS["bagel, a question"][0], seed=1)
    calls = counted(engine, "bagel/tiny", monkeypatch)
    engine.run(asked)
    calls.clear()
    memory = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(memory, format="PNG")
    other = replace(asked, inputs=(ModalPart(modality=Modality.IMAGE, data=memory.getvalue()),))
    clip = engine.run(other)
    assert (calls["model.vision_block"], calls["model.text_block"]) == (1, 1)
    assert same(clip, plain.run(other))
