"""Loop parameters: typed, complete, and refused where the loop would not read them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from fv_core.card import LoopSpec
from fv_core.errors import CardError
from fv_core.loop.params import check_roles, read_params
from fv_core.loop.policies.guidance import Guidance


@dataclass(frozen=True, kw_only=True)
class Params:
    cfg: Guidance = Guidance.CLASSIC
    boundary: float | None = None
    count: int = 3

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"count {self.count} is below 0")


@dataclass(frozen=True, kw_only=True)
class Required:
    count: int


def test_what_is_given_is_read_and_the_rest_has_defaults() -> None:
    assert read_params(Params, {}, owner="x") == Params()
    read = read_params(Params, {"cfg": "joint", "boundary": math.inf}, owner="x")
    assert read == Params(cfg=Guidance.JOINT, boundary=math.inf)
    assert isinstance(read.cfg, Guidance)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tempo": 1}, "tempo"),
        ({"count": object()}, "object has no JSON form"),
        ({"cfg": "free"}, "free"),
        ({"boundary": "0.5"}, "boundary"),
        ({"count": 1.0}, "count"),
        ({"count": True}, "count"),
        ({"count": None}, "count"),
        ({"count": -1}, "below 0"),
    ],
)
def test_what_the_loop_does_not_read_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(CardError) as caught:
        read_params(Params, given, owner="card toy/tiny")
    assert caught.value.code == "FV206"
    assert "card toy/tiny: loop parameter" in caught.value.message
    assert words in caught.value.message
    assert caught.value.legal == "cfg: Guidance = 'classic', boundary: float | None = None, count: int = 3"


def test_a_parameter_without_default_must_be_given() -> None:
    assert read_params(Required, {"count": 1}, owner="x").count == 1
    with pytest.raises(CardError) as caught:
        read_params(Required, {}, owner="x")
    assert caught.value.code == "FV206"
    assert caught.value.legal == "count: int"


@pytest.mark.parametrize(
    ("bound", "words"),
    [({}, "no component"), ({"vae": "a", "denoiser": "b"}, "drives"), ({"vea": "a"}, "no component")],
)
def test_roles_are_bound_exactly(bound: dict[str, str], words: str) -> None:
    check_roles(LoopSpec(loop="x:y", semantics="x", binds={"vae": "a"}), ("vae",), owner="card toy/tiny")
    with pytest.raises(CardError) as caught:
        check_roles(LoopSpec(loop="x:y", semantics="x", binds=bound), ("vae",), owner="card toy/tiny")
    assert caught.value.code == "FV204"
    assert words in caught.value.message
