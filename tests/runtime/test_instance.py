"""Components load when they are first needed, once, and are shared by the loops that bind them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from fv_core.card import LoopSpec, derive
from fv_core.errors import CardError, PluginError, RequestError
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.runtime.loops import build_loop
from fv_core.runtime.records.provenance import weights_name
from fv_wan21.card import MICRO


def instance(offload: Offload = Offload.NONE) -> ModelInstance:
    return ModelInstance(MICRO, device=torch.device("cpu"), dtype=torch.float32, folder=None, offload=offload)


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every `module.to(device)`, as class name and device."""
    seen: list[tuple[str, str]] = []
    original = nn.Module.to

    def to(self: nn.Module, device: object) -> nn.Module:
        seen.append((type(self).__name__, str(device)))
        return original(self, device)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(nn.Module, "to", to)
    return seen


def test_nothing_is_loaded_until_it_is_needed() -> None:
    made = instance()
    before = made.loaded
    made.component("vae")
    assert (before, made.loaded) == ((), ("vae",))


def test_component_is_loaded_once() -> None:
    made = instance()
    assert made.component("transformer") is made.component("transformer")


def test_resident_bytes_count_shared_storage_once() -> None:
    made = instance()
    text = made.component("text").module
    shared = text.get_parameter("shared.weight")
    assert text.get_parameter("encoder.embed_tokens.weight").data_ptr() == shared.data_ptr()
    assert made.resident_bytes() == 4 * MICRO.components["text"].parameters


def test_without_offload_nothing_moves(moves: list[tuple[str, str]]) -> None:
    made = instance()
    for component_id in ("text", "transformer", "vae", "text"):
        made.component(component_id)
    assert moves == []


def test_offload_keeps_one_component_on_the_device(moves: list[tuple[str, str]]) -> None:
    made = instance(Offload.COMPONENT)
    made.component("text")
    made.component("transformer")
    assert moves == [("UMT5EncoderModel", "cpu")]
    moves.clear()
    made.component("text")
    assert moves == [("WanTransformer3DModel", "cpu"), ("UMT5EncoderModel", "cpu")]
    moves.clear()
    made.component("text")
    assert moves == []


def test_seeded_weights_are_the_same_every_time() -> None:
    first, second = instance().component("transformer").module, instance().component("transformer").module
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_changes_of_the_weights_are_counted_and_told() -> None:
    made = instance()
    made.component("vae")
    assert (made.version, made.changed, weights_name(made)) == (0, {}, "seed 0")
    made.weights_changed()
    made.weights_changed("vae")
    with pytest.raises(RequestError, match=r"FV310 components 'vea'.*legal: text, transformer, vae"):
        made.weights_changed("vea")
    assert (made.version, made.changed) == (2, {"vae": ()})
    assert weights_name(made) == "seed 0, changed 2 times"


def test_unresolvable_factory_names_the_reference() -> None:
    broken = derive(
        MICRO,
        components={**MICRO.components, "vae": replace(MICRO.components["vae"], load="fv_wan21:nothing")},
    )
    made = ModelInstance(
        broken, device=torch.device("cpu"), dtype=torch.float32, folder=None, offload=Offload.NONE
    )
    with pytest.raises(PluginError) as caught:
        made.component("vae")
    assert caught.value.code == "FV105" and "fv_wan21:nothing" in caught.value.message


def test_loop_without_the_semantics_is_refused() -> None:
    loops = {**MICRO.loops, "denoise": replace(MICRO.loops["denoise"], semantics="flow.dmd4/v1")}
    with pytest.raises(CardError) as caught:
        build_loop(derive(MICRO, loops=loops), "denoise")
    assert caught.value.code == "FV202" and "flow.unipc2.cfg/v1" in caught.value.message


@pytest.mark.parametrize("params", [{"cgf": "joint"}, {"cfg": "parallel"}, {"boundary": "high"}])
def test_loop_parameters_are_typed(params: dict[str, str]) -> None:
    spec: LoopSpec = replace(MICRO.loops["denoise"], params=params)
    with pytest.raises(CardError) as caught:
        build_loop(derive(MICRO, loops={**MICRO.loops, "denoise": spec}), "denoise")
    assert caught.value.code == "FV206"


def test_unloading_forgets_what_the_folder_was_known_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold other weights by the time that they are loaded again: it is checked, and named, anew."""
    told = iter(["before", "after"])
    monkeypatch.setattr("fv_core.runtime.instance.fingerprint", lambda card, folder: next(told))
    made = instance()
    made.folder = Path("weights")
    built: list[str] = []

    def build(component_id: str, *, check_only: bool) -> object:
        built.append(component_id)
        return SimpleNamespace(module=nn.Linear(2, 2))

    monkeypatch.setattr(made, "_build", build)
    for name in ("before", "before", "after"):
        if name == "after":
            made.unload("vae")
        made.check(["vae"])
        assert made.fingerprint() == name
    assert built == ["vae", "vae"]
