"""What is claimed for a component before it is loaded is what it takes, and no memory is one of two components."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fv_core import Engine, FvError, ModelCard, Request, derive
from fv_core.card import LoadContext
from fv_core.memory import total
from fv_core.plugins import find_card
from fv_core.runtime.device import pick_dtype
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.testing.tiny import CARD, Text, text

CARDS = ("bagel/tiny", "cosmos3/tiny", "ltx2/tiny", "ltx2/tiny-base", "wan-causal/tiny", "wan21/micro")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", CARDS)
def test_every_component_takes_what_is_claimed_for_it(model: str, dtype: str) -> None:
    card = find_card(model)
    instance = ModelInstance(
        card,
        device=torch.device("cpu"),
        dtype=pick_dtype(dtype, card, torch.device("cpu")),
        folder=None,
        offload=Offload.NONE,
    )
    claimed = {name: instance.component_bytes(name) for name in card.components}
    assert instance.loaded == () and instance.resident_bytes() == 0
    for name in claimed:
        instance.component(name)
    assert {name: instance.component_bytes(name) for name in claimed} == claimed
    parameters = {name: spec.parameters for name, spec in card.components.items()}
    if model.startswith("ltx2") and dtype == "float32":  # buffers are most of it
        assert claimed["vocoder"] == 2_425_668 > 4 * parameters["vocoder"] == 305_400


@pytest.mark.parametrize(
    ("model", "dtype", "reuse"),
    [
        ("wan21/micro", "bfloat16", True),
        ("wan21/micro", "float32", False),
        ("ltx2/tiny-base", "float32", True),
    ],
)
def test_a_request_runs_again_and_again_in_the_memory_that_is_predicted(
    model: str, dtype: str, reuse: bool
) -> None:
    """With claims of parameters alone the second one was refused."""
    request = Request(prompt="a red circle", model=model, seed=1, size=(32, 32), frames=9, steps=2)
    with Engine([model], device="cpu", dtype=dtype) as engine:
        peak = engine.plan(request).peak_bytes
    with Engine([model], device="cpu", dtype=dtype, memory=peak, reuse=reuse) as engine:
        for rest in (None, engine.sleep, engine.unload):
            if rest is not None:
                rest(model)
            engine.run(request)
            assert engine._residency.budget.reserved() <= peak == engine.plan(request).peak_bytes
    with Engine([model], device="cpu", dtype=dtype, memory=peak - 1) as engine:
        with pytest.raises(FvError, match=rf"FV401 .*needs {peak} bytes"):
            engine.run(request)
        assert engine.instance(model).loaded == ()


KEPT: list[Text] = []


def kept(context: LoadContext) -> Text:
    """A factory that makes its module once for all cards."""
    if not KEPT or next(KEPT[0].module.parameters()).is_meta:
        KEPT[:] = [text(context)]
    return KEPT[0]


def sharing(model: str, *names: str) -> ModelCard:
    parts = {name: replace(CARD.components["text"], load=f"{__name__}:kept") for name in names}
    return derive(CARD, model_id=model, components={**CARD.components, **parts})


def test_two_cards_do_not_share_the_memory_of_a_component() -> None:
    """It would be counted twice, and be gone for both when one of them sleeps."""
    KEPT.clear()
    one, other = (sharing(f"testing/{name}", "text") for name in ("one", "other"))
    with Engine([one, other, CARD], device="cpu") as engine:
        asked = Request(prompt="a", model="testing/one", size=(16, 16), frames=1, steps=1)
        engine.run(asked)
        for _ in range(2):
            with pytest.raises(
                FvError,
                match=r"FV123 component text of testing/other: .* those of component text of testing/one",
            ):
                engine.run(replace(asked, model="testing/other"))
            engine.sleep("testing/one")
        engine.run(replace(asked, model="testing/tiny"))
        engine.run(asked)
        assert engine.counters().reserved_bytes == engine.counters().requests == 0


def test_nor_do_two_components_of_one_card() -> None:
    KEPT.clear()
    card = sharing("testing/one", "text", "more")
    with Engine([card], device="cpu") as engine:
        instance = engine.instance("testing/one")
        instance.component("text")
        with pytest.raises(FvError, match="FV123 component more of testing/one"):
            instance.component("more")
        assert instance.loaded == ("text",)
        assert (
            total(claim for ticket in engine._residency.budget._tickets for claim in ticket.claims)
            == 256 * 8 * 4
        )
