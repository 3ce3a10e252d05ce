"""Settling a request: every value ends up legal and told, or the request is refused with a registered code."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fv_core.card import ModelCard, derive
from fv_core.errors import CODES, RequestError
from fv_core.request import (
    Modality,
    ModalPart,
    Numerics,
    OutputSpec,
    Request,
    ResolvedRequest,
    Size,
    TaskType,
)
from fv_core.runtime.requests.resolve import resolve
from fv_wan21.card import MICRO

GUIDED_NEGATIVE = derive(MICRO, defaults={"negative_prompt": "grey"})
FEW_STEPS = derive(MICRO, recipe={"steps": 4, "steps_fixed": True}, limits={"steps": (4, 4)})


def settle(card: ModelCard = MICRO, **fields: Any) -> ResolvedRequest:
    return resolve(Request(**{"prompt": "a ball", **fields}), card, Numerics.EXACT)


def refused(card: ModelCard = MICRO, **fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        settle(card, **fields)
    return caught.value


def test_a_prompt_alone_gets_the_cards_values() -> None:
    settled = settle(seed=3)
    assert settled == ResolvedRequest(
        model="wan21/micro", task=TaskType.T2V, prompt="a ball", negative_prompt="", seed=3, size=Size(64, 64),
        frames=17, fps=8.0, steps=MICRO.recipe.steps, guidance=5.0, numerics=Numerics.EXACT, params={"shift": 3.0},
    )  # fmt: skip
    assert settle(GUIDED_NEGATIVE).negative_prompt == "grey"
    assert settle(GUIDED_NEGATIVE, negative_prompt="").negative_prompt == ""


def test_a_seed_is_drawn_where_none_is_given() -> None:
    assert len({settle().seed for _ in range(8)}) > 1


@pytest.mark.parametrize("drawn", [0, 2**31 + 257, 2**32 - 1])
def test_a_seed_is_drawn_from_32_bits(drawn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def draw(below: int) -> int:
        asked.append(below)
        return drawn

    monkeypatch.setattr("secrets.randbelow", draw)
    assert settle().seed == drawn
    assert asked == [2**32]


@pytest.mark.parametrize("fps", [0.01, 240])
def test_the_ends_of_the_range_of_frame_rates_are_legal(fps: float) -> None:
    assert settle(fps=fps).fps == fps


def test_what_is_given_is_used() -> None:
    given: dict[str, Any] = {
        "negative_prompt": "n", "seed": 2**64 - 1, "frames": 5, "fps": 12, "steps": 3, "guidance": 2,
        "params": {"shift": 8}, "numerics": "fast", "task": "t2v", "size": (32, 16),
    }  # fmt: skip
    settled = settle(**given, output=OutputSpec(keep=("latent", "cond", "uncond", "video")))
    assert (settled.size, settled.params, settled.keep) == (
        Size(32, 16),
        {"shift": 8},
        ("latent", "cond", "uncond", "video"),
    )
    for name in ("negative_prompt", "seed", "frames", "fps", "steps", "guidance", "numerics", "task"):
        assert getattr(settled, name) == given[name]
    assert type(settled.numerics) is Numerics
    assert type(settled.task) is TaskType
    assert (type(settled.fps), type(settled.guidance)) == (float, float)


def test_a_negative_prompt_without_guidance_is_told_as_unused() -> None:
    assert settle(guidance=1.0, negative_prompt="grey").adjusted != ()
    assert settle(guidance=1.0).adjusted == settle(guidance=2.0, negative_prompt="grey").adjusted == ()


IMAGE = ModalPart(modality=Modality.IMAGE, path="x.png")
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("FV301", "visible", {"prompt": " \u200b\u2028\t"}),
    ("FV301", "visible", {"prompt": "&nbsp;"}),
    ("FV301", "visible", {"prompt": "&amp;nbsp; &#160;&#xA0;&zwnj;&ZeroWidthSpace;"}),
    ("FV301", "visible", {"prompt": "\u3164\uffa0\u2800\ufe0f\u034f"}),
    ("FV301", "prompt", {"prompt": "\udc80"}),
    ("FV301", "negative", {"negative_prompt": 5}),
    ("FV302", "72x72", {"size": (72, 72)}),
    ("FV302", "multiples of 16", {"size": (64,)}),
    ("FV302", "multiples of 16", {"size": "64x64"}),
    ("FV302", "multiples of 16", {"size": (64.0, 64.0)}),
    ("FV302", "multiples of 16", {"size": 64}),
    ("FV303", "4k+1", {"frames": 16}),
    ("FV303", "4k+1", {"frames": 10**400}),
    ("FV304", "1 to 1000", {"steps": 1.5}),
    ("FV304", "1 to 1000", {"steps": True}),
    ("FV305", "1 (off) to 100", {"guidance": 0.99}),
    ("FV305", "1 (off) to 100", {"guidance": math.nan}),
    ("FV305", "1 (off) to 100", {"guidance": 10**400}),
    ("FV306", "2^64 - 1", {"seed": -1}),
    ("FV306", "2^64 - 1", {"seed": 2**64}),
    ("FV307", "240", {"fps": 0}),
    ("FV307", "240", {"fps": math.inf}),
    ("FV307", "240", {"fps": math.nextafter(240, math.inf)}),
    ("FV307", "240", {"fps": math.nextafter(0.01, 0)}),
    ("FV308", "image input", {"inputs": (IMAGE,)}),
    ("FV308", "input", {"inputs": "x.png"}),
    ("FV309", "t2v", {"task": "i2v"}),
    ("FV309", "t2v", {"task": ["t2v"]}),
    ("FV310", "shift", {"params": {"tempo": 1}}),
    ("FV310", "0.01 to 100", {"params": {"shift": "3"}}),
    ("FV310", "0.01 to 100", {"params": {"shift": math.nan}}),
    ("FV310", "shift", {"params": ["shift"]}),
    ("FV310", "latent", {"output": OutputSpec(keep=("latents",))}),
    ("FV310", "latent", {"output": OutputSpec(keep="latent")}),  # type: ignore[arg-type]
    ("FV310", "latent", {"output": ("latent",)}),
    ("FV310", "cond, latent", {"output": OutputSpec(keep=("uncond",)), "guidance": 1.0}),
    ("FV314", "reference, exact, fast", {"numerics": "quick"}),
]


@pytest.mark.parametrize(("code", "words", "fields"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_is_not_legal_is_refused_with_what_is(code: str, words: str, fields: dict[str, Any]) -> None:
    error = refused(**fields)
    assert error.code == code
    assert words in error.message
    assert error.remedy


def test_a_few_step_recipe_takes_its_own_count_only() -> None:
    assert settle(FEW_STEPS).steps == settle(FEW_STEPS, steps=4).steps == 4
    assert "exactly 4" in refused(FEW_STEPS, steps=50).message


def test_a_card_without_programs_offers_no_task() -> None:
    assert refused(replace(MICRO, programs={})).code == "FV309"


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.binary(max_size=2),
    st.sampled_from([10**400, -(10**400), 2**64 - 1, 16, 17, 64, "t2v", "fast", "latent"]),
    st.lists(st.integers(0, 64), max_size=3), st.tuples(st.integers(0, 600), st.integers(0, 600)),
    st.dictionaries(st.sampled_from(["shift", "x"]), st.one_of(st.none(), st.floats(), st.text()), max_size=2),
)  # fmt: skip
legal: dict[str, st.SearchStrategy[Any]] = {
    "prompt": st.just("a ball"),
    "task": st.sampled_from([None, TaskType.T2V]),
    "negative_prompt": st.sampled_from([None, "grey"]),
    "seed": st.none() | st.integers(0, 2**64 - 1),
    "size": st.none() | st.tuples(*[st.integers(1, 32).map(lambda k: 16 * k)] * 2),
    "frames": st.none() | st.integers(0, 31).map(lambda k: 4 * k + 1),
    "fps": st.none() | st.floats(0.01, 240),
    "steps": st.none() | st.integers(1, 1000),
    "guidance": st.none() | st.floats(1, 100),
    "numerics": st.none() | st.sampled_from(Numerics),
    "inputs": st.just(()),
    "params": st.dictionaries(st.just("shift"), st.floats(0.01, 100)),
    "output": st.builds(OutputSpec, keep=st.lists(st.sampled_from(["latent", "video"])).map(tuple)),
}


@settings(max_examples=100)
@given(st.fixed_dictionaries(legal))
def test_every_legal_request_is_settled_within_the_cards_limits(fields: dict[str, Any]) -> None:
    assert_legal(settle(**fields))


@settings(max_examples=400)
@given(st.fixed_dictionaries(legal), st.dictionaries(st.sampled_from(sorted(legal)), anything, max_size=3))
def test_any_values_are_settled_or_refused_and_nothing_else(
    fields: dict[str, Any], odd: dict[str, Any]
) -> None:
    try:
        settled = settle(**{**fields, **odd})
    except RequestError as error:
        assert_told(error)
    else:
        assert_legal(settled)


def assert_told(error: RequestError) -> None:
    assert error.code in CODES
    assert error.message
    assert error.to_json()["code"] == error.code


def assert_legal(settled: ResolvedRequest) -> None:
    limits = MICRO.limits
    assert limits.size.allows(settled.size)
    assert limits.frames.allows(settled.frames)
    assert 1 <= settled.steps <= 1000
    assert 1 <= settled.guidance <= 100
    assert 0 < settled.fps <= 240
    assert 0 <= settled.seed < 2**64
    assert isinstance(settled.numerics, Numerics)
    assert isinstance(settled.task, TaskType)
    assert settled.params.keys() == MICRO.params.keys()
    assert all(rule.allows(settled.params[name]) for name, rule in MICRO.params.items())
    assert set(settled.keep) <= {"cond", "uncond", "latent", "video"}
