"""The reasoner and the generator are one model: the same bits as transformers, then as diffusers, of one copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fv_core import OutputSpec, Request
from fv_core.request import Numerics, TaskType
from fv_cosmos3.card import TINY
from fv_cosmos3.pathways import Text, understand
from fv_cosmos3.reasoner import greedy, tied_reasoner
from fv_cosmos3.transformer import sample

QUESTIONS = (
    "what does the robot arm do next?",
    "why",
    " ".join(f"the cup {i} does not fall;" for i in range(60)),
    "\U0001f534 zu\u0308gig?",
)


def read(module: Any, tokens: Tensor, start: int = 0, past: Sequence[Tensor] = ()) -> Any:
    """Hidden states, and keys and values, of one text."""
    (hidden,), (kv,) = understand(module, [Text(tokens=tokens, start=start, past=past)])
    return hidden, kv


def question(text: str, limit: int = 16, **params: Any) -> Request:
    return Request(
        task=TaskType.QA, prompt=text, seed=3, numerics=Numerics.REFERENCE,
        params={"max_tokens": limit, **params}, output=OutputSpec(keep=("question", "answer_tokens")),
    )  # fmt: skip


@pytest.mark.parametrize("text", QUESTIONS)
def test_tokens_equal_those_of_transformers(text: str, mine: Any, reference: Any) -> None:
    clip = mine.engine.run(question(text))
    asked = reference.pipeline.text_tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True
    ).input_ids
    written, _ = greedy(reference.reasoner, asked, 16, (400, 401))
    assert clip.tensors["question"].tolist() == asked
    assert clip.tensors["answer_tokens"].tolist() == written
    assert clip.text == reference.pipeline.text_tokenizer.decode(written, skip_special_tokens=True).strip()


@pytest.mark.parametrize("text", QUESTIONS)
def test_logits_of_every_token_equal_those_of_transformers(text: str, mine: Any, reference: Any) -> None:
    transformer = mine.instance.component("transformer")
    asked = torch.tensor(transformer._chat([{"role": "user", "content": text}]))
    written, logits = greedy(reference.reasoner, asked.tolist(), 12, (400, 401))
    hidden, kv = read(transformer.module, asked)
    for step, (token, theirs) in enumerate(zip(written, logits, strict=True)):
        assert torch.equal(transformer.module.lm_head(hidden[-1:])[0], theirs)
        hidden, kv = read(transformer.module, torch.tensor([token]), len(asked) + step, kv)


def test_generation_after_answering_on_the_same_instance_equals_the_pipeline(
    mine: Any, difference: Callable[..., float]
) -> None:
    before = mine.instance.component("transformer")
    mine.engine.run(question(QUESTIONS[0]))
    assert difference() == 0.0
    assert mine.instance.component("transformer") is before


def test_thinking_generates_from_what_the_reasoner_wrote(
    mine: Any, reference: Any, case_of: Any, compare: Callable[..., float]
) -> None:
    case = case_of(params={"think": True, "max_tokens": 8})
    clip = mine.clip(case)
    assert clip.text == mine.engine.run(question(case.prompt, 8)).text != ""
    thought = reference.outputs(case_of(prompt=clip.text))
    assert compare(dict(clip.tensors), thought) == 0.0
    assert compare(dict(clip.tensors), reference.outputs(case_of())) > 0.0


def test_a_branch_not_taken_loads_nothing(mine: Any, case_of: Any) -> None:
    mine.again()
    mine.engine.run(question("why"))
    assert mine.instance.loaded == ("transformer",)
    mine.clip(case_of(steps=1, frames=1))
    assert mine.instance.loaded == ("transformer", "vae")
    mine.clip(case_of(steps=1, frames=1, params={"audio": True}))
    assert mine.instance.loaded == ("transformer", "vae", "sound")


def storages(module: Any, visual: bool = True) -> set[int]:
    named = module.named_parameters()
    return {value.untyped_storage().data_ptr() for name, value in named if visual or ".visual." not in name}


def test_every_parameter_of_the_reasoner_is_the_transformers_own_storage(mine: Any) -> None:
    module = mine.instance.component("transformer").module
    reasoner = tied_reasoner(module)
    language = storages(reasoner, visual=False)
    assert len(language) == 25
    assert language < storages(module)
    roles = {role: spec.binds[role] for spec in TINY.loops.values() for role in spec.binds if role != "vae"}
    assert roles == {"decoder": "transformer", "denoiser": "transformer"}


def test_one_copy_saves_what_a_second_engine_would_hold(
    mine: Any, case_of: Any, record_property: Callable[[str, object], None]
) -> None:
    mine.again()
    mine.engine.run(question("why"))
    answering = mine.instance.resident_bytes()
    mine.clip(case_of(steps=1, frames=1))
    module = mine.instance.component("transformer").module
    vae = sum(p.numel() * 4 for p in mine.instance.component("vae").module.parameters())
    assert mine.instance.resident_bytes() == answering + vae
    second = sum(p.numel() * 4 for n, p in tied_reasoner(module).named_parameters() if ".visual." not in n)
    record_property("bytes of one copy", answering)
    record_property("bytes of two engines", answering + second)
    assert (sum(p.numel() for p in module.parameters()), second) == (103_748, 45_280 * 4)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.integers(0, 1000), st.floats(0.01, 5.0), st.floats(0.0, 1.0, exclude_max=True))
def test_sampling_follows_the_inverse_of_the_distribution(
    seed: int, temperature: float, uniform: float
) -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(seed)) * 3
    token, logprob = sample(logits, temperature, uniform)
    probabilities = torch.softmax(logits.double() / temperature, dim=-1)
    below, above = probabilities[:token].sum(), probabilities[: int(token) + 1].sum()
    assert below - 1e-5 <= uniform <= above + 1e-5
    torch.testing.assert_close(logprob, probabilities[token].log().float(), atol=1e-4, rtol=1e-3)


def test_temperature_zero_is_greedy_whatever_is_drawn() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    for uniform in (0.0, 0.5, 0.999):
        assert sample(logits, 0.0, uniform)[0] == logits.argmax()


def test_seed_decides_what_temperature_draws(mine: Any) -> None:
    def drawn(seed: int) -> Tensor:
        request = question("why", temperature=2.0)
        tensor: Tensor = mine.engine.run(replace(request, seed=seed)).tensors["answer_tokens"]
        return tensor

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_a_context_can_be_gone_on_from_in_pieces(mine: Any) -> None:
    """Three tokens at once over a past attend to it and, causally, to each other."""
    module = mine.instance.component("transformer").module
    tokens = torch.arange(20)
    whole, _ = read(module, tokens)
    _, kv = read(module, tokens[:12])
    later, kv = read(module, tokens[12:], 12, kv)
    torch.testing.assert_close(later, whole[12:], atol=1e-5, rtol=1e-5)
    assert len(kv[0]) == 20
