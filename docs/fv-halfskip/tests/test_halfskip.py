"""The interceptor keeps to everything that fv expects of one, and its parameter does what it says."""

from __future__ import annotations

import pytest

from fv_core import Engine, ModelCard, Numerics, OutputSpec, Request
from fv_core.testing import InterceptorConformance
from fv_halfskip.skip import Params

REQUEST = Request(  # without guidance no calls share a forward: bits can be compared under fast numerics too
    prompt="a red ball",
    seed=7,
    steps=6,
    guidance=1.0,
    numerics=Numerics.FAST,
    output=OutputSpec(keep=("latent",)),
)


class TestEveryOther(InterceptorConformance):
    interceptor = "halfskip/every-other"


def run(card: ModelCard, keep_first: int) -> list[float]:
    """The latent of a run with the interceptor."""
    extension = ("halfskip/every-other", {"keep_first": keep_first})
    with Engine([card], device="cpu", extensions=[extension]) as engine:
        return engine.run(REQUEST).tensors["latent"].flatten().tolist()


def test_skipping_changes_the_clip_unless_all_steps_are_kept(engine: Engine, tiny_card: ModelCard) -> None:
    plain = engine.run(REQUEST).tensors["latent"].flatten().tolist()
    assert run(tiny_card, keep_first=6) == plain
    assert run(tiny_card, keep_first=4) != plain
    assert run(tiny_card, keep_first=4) != run(tiny_card, keep_first=2)


def test_keeping_fewer_than_no_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        Params(keep_first=-1)
