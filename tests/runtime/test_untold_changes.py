"""Weights that were changed without a word to the engine are kept or refused by name, never lost in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fv_core import Engine, FvError, Request, derive
from fv_core.plugins import find_card
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.testing.tiny import CARD

ONE, OTHER = derive(CARD, model_id="testing/one"), derive(CARD, model_id="testing/other")


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FV_HOME", str(tmp_path))
    torch.set_num_threads(1)


@pytest.fixture
def engine() -> Any:
    """It has room for one of the models, and computes everything anew."""
    with Engine([ONE, OTHER], device="cpu") as roomy:
        peak = roomy.plan(ask()).peak_bytes
    with Engine([ONE, OTHER], device="cpu", memory=peak, reuse=False) as made:
        yield made


def ask(model: str = "testing/one") -> Request:
    return Request(prompt="a red circle", model=model, seed=1, size=(16, 16), frames=1, steps=2)


def frames(engine: Engine, model: str = "testing/one") -> Any:
    return engine.run(ask(model)).frames.tolist()


def denoiser(engine: Engine) -> Any:
    return engine.instance("testing/one").component("denoiser").module


def write(module: Any) -> None:
    with torch.no_grad():
        module.conv.weight.mul_(3.0)


def optimize(module: Any) -> None:
    module.conv.requires_grad_(True)
    module.conv(torch.ones(1, 4, 1, 2, 2)).sum().backward()
    torch.optim.AdamW(module.conv.parameters(), lr=1.0).step()
    module.requires_grad_(False)


def replace_parameter(module: Any) -> None:
    module.conv.weight = nn.Parameter(module.conv.weight * 3.0, requires_grad=False)


def replace_data(module: Any) -> None:
    module.conv.weight.data = module.conv.weight.data * 3.0


CHANGES: dict[str, Callable[[Any], None]] = {
    "write": write, "optimize": optimize, "parameter": replace_parameter, "data": replace_data,
}  # fmt: skip


@pytest.mark.parametrize("how", CHANGES)
def test_a_model_that_makes_room_sleeps_with_them(how: str, engine: Engine) -> None:
    plain = frames(engine)
    CHANGES[how](denoiser(engine))
    trained = frames(engine)
    assert trained != plain
    assert frames(engine, "testing/other") == plain
    instance = engine.instance("testing/one")
    assert instance.asleep == ("denoiser",) and instance.version == 1
    assert "conv.weight" in instance.changed["denoiser"]
    assert frames(engine) == trained


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("sleeping", [False, True])
def test_unloading_is_refused_with_component_and_tensors(how: str, sleeping: bool, engine: Engine) -> None:
    plain = frames(engine)
    CHANGES[how](denoiser(engine))
    trained = frames(engine)
    if sleeping:
        engine.sleep("testing/one")
    for components in ((), ("denoiser",)):
        with pytest.raises(FvError, match=r"FV408 denoiser of testing/one: .*weights_changed.*conv\.weight"):
            engine.unload("testing/one", *components)
    engine.unload("testing/one", "text", "vae")
    assert frames(engine) == trained
    engine.unload("testing/one", discard=True)
    assert frames(engine) == plain and not engine.instance("testing/one").changed


def test_told_changes_are_not_found_and_later_ones_are(engine: Engine) -> None:
    frames(engine)
    write(denoiser(engine))
    instance = engine.instance("testing/one")
    instance.weights_changed("denoiser")
    instance.notice_changes("denoiser")
    assert (instance.changed, instance.version) == ({"denoiser": ()}, 1)
    write(denoiser(engine))
    instance.notice_changes("denoiser")
    instance.notice_changes("denoiser")
    assert (instance.changed, instance.version) == ({"denoiser": ("conv.weight",)}, 2)


def test_what_was_computed_before_is_not_what_changed_weights_compute(engine: Engine) -> None:
    """Once they are found: results have the version of the weights in their keys."""
    with Engine([ONE], device="cpu") as keeping:
        plain = frames(keeping)
        with torch.no_grad():
            next(keeping.instance("testing/one").component("text").module.parameters()).mul_(9.0)
        keeping.sleep("testing/one")
        assert frames(keeping) != plain


@pytest.mark.parametrize("how", ["parameter", "data", "write"])
def test_weights_given_to_a_component_that_sleeps_are_not_lost(how: str, engine: Engine) -> None:
    plain = frames(engine)
    module = denoiser(engine)
    engine.sleep("testing/one", "denoiser")
    if how == "data":
        module.conv.weight.data = torch.ones(4, 4, 3, 3, 3)
    else:
        CHANGES[how](module)
    for _ in range(2):
        with pytest.raises(FvError, match=r"FV408 component denoiser of testing/one: .*conv\.weight"):
            engine.wake("testing/one")
        with pytest.raises(FvError, match="FV408"):
            engine.run(ask())
        with pytest.raises(FvError, match="FV408"):
            engine.unload("testing/one")
    assert engine.counters().reserved_bytes == engine.counters().requests == 0
    engine.unload("testing/one", discard=True)
    assert frames(engine) == plain


def test_changes_are_seen_where_weights_were_loaded_without_counters(engine: Engine) -> None:
    with torch.inference_mode():
        plain = frames(engine)
    write(denoiser(engine))
    with pytest.raises(FvError, match="FV408"):
        engine.unload("testing/one")
    with torch.inference_mode():
        trained = frames(engine)
        engine.sleep("testing/one")
        assert frames(engine) == trained != plain


def test_moves_of_an_offloaded_model_are_no_changes_and_hide_none() -> None:
    instance = ModelInstance(
        ONE, device=torch.device("cpu"), dtype=torch.float32, folder=None, offload=Offload.COMPONENT
    )
    for component in ("text", "denoiser", "vae", "denoiser"):
        instance.component(component)
    assert not instance.changed
    write(instance.component("denoiser").module)
    instance.component("vae")
    assert instance.changed == {"denoiser": ("conv.weight",)}


def test_a_move_to_another_device_is_no_change_and_hides_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device of its own every move gives tensors other memory, which copying stands for here."""

    def to(module: nn.Module, device: object) -> nn.Module:
        return module._apply(lambda tensor: tensor.clone())  # type: ignore[no-any-return]

    monkeypatch.setattr(nn.Module, "to", to)
    test_moves_of_an_offloaded_model_are_no_changes_and_hide_none()


def test_bytes_that_a_change_takes_are_counted(engine: Engine) -> None:
    frames(engine)
    budget, instance = engine._residency.budget, engine.instance("testing/one")
    before = budget.reserved()
    denoiser(engine).register_buffer("more", torch.zeros(100))
    instance.weights_changed("denoiser")
    assert budget.reserved() == before + 400


@pytest.mark.parametrize(
    "model", ["bagel/tiny", "cosmos3/tiny", "ltx2/tiny", "wan-causal/tiny", "wan21/micro"]
)
def test_runs_change_no_weight(model: str) -> None:
    """Or the model would sleep rather than leave, and could not be unloaded."""
    card = find_card(model)
    with Engine([model], device="cpu") as engine:
        engine.run(
            Request(
                prompt="a red circle",
                model=model,
                seed=1,
                steps=card.recipe.steps if card.recipe.steps_fixed else 2,
            )
        )
        instance = engine.instance(model)
        for component in instance.loaded:
            instance.notice_changes(component)
        assert not instance.changed
        engine.unload(model)


def test_a_model_that_is_certified_is_not_run_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, tuple[str, ...]]] = []
    monkeypatch.setattr(
        "fv_core.runtime.residency.require_certified", lambda instance: seen.append(dict(instance.changed))
    )
    with Engine([ONE], device="cpu", require_certified=True) as engine:
        engine.run(ask())
        write(denoiser(engine))
        engine.run(ask())
    assert seen[0] == {} and seen[-1] == {"denoiser": ("conv.weight",)}
