"""LoRA on all models: every layer that an adapter may bind is called as a module, or the adapter would do nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core import Adapter, Engine, FvError, Request, derive
from fv_core.adapters import low_rank
from fv_core.adapters.binding import Target, bind
from fv_core.adapters.files import find
from fv_core.adapters.settle import takers
from fv_core.plugins import find_card
from fv_core.program import InputSpec
from fv_core.request import EVERYTHING, Modality, ModalPart, OutputSpec, Size, TaskType
from fv_core.runtime.batching import Forwards
from fv_core.runtime.gain import Always
from fv_core.runtime.records.samples import sample
from fv_core.testing.adapters import adaptable, factors, write_adapter

PREFIXES = {"text": "text_encoder.", "transformer": "transformer.", "connectors": "connectors."}
"""Of components by id; all others are named bare."""

ALL = OutputSpec(keep=(EVERYTHING,))


def picture(side: int) -> ModalPart:
    return sample(InputSpec(modality=Modality.IMAGE), Size(side, side), 1)


REQUESTS = {
    "bagel/tiny": [
        Request(
            prompt="a red circle", task=TaskType.EDIT, seed=1, steps=3, inputs=(picture(64),), output=ALL
        ),
        Request(prompt="red?", task=TaskType.QA, seed=1, params={"max_tokens": 2}, inputs=(picture(64),)),
    ],
    "cosmos3/tiny": [
        Request(prompt="a red circle", seed=1, size=(32, 32), frames=5, steps=2, params={"audio": True}, output=ALL),
        Request(prompt="red?", task=TaskType.QA, seed=1, params={"max_tokens": 2}),
    ],
    "ltx2/tiny": [Request(prompt="a red circle", seed=1, frames=9, output=ALL)],
    "wan-causal/tiny": [Request(prompt="a red circle", seed=1, frames=9, output=ALL)],
    "wan21/micro": [Request(prompt="a red circle", seed=1, size=(16, 16), frames=5, steps=2, output=ALL)],
}  # fmt: skip
"""Between them the requests of a model run every layer that takes adapters; the first makes frames."""

UNUSED = {"cosmos3/tiny": {("transformer", "action_proj_in"), ("transformer", "action_proj_out")}}
"""Layers of tasks that the requests leave out."""


@pytest.mark.parametrize("model", sorted(REQUESTS))
def test_every_layer_that_binds_is_altered(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    altered: set[Any] = set()
    product = low_rank._product

    def watched(layer: Any, *more: Any, **named: Any) -> Tensor:
        altered.add(layer)
        return product(layer, *more, **named)

    monkeypatch.setattr(low_rank, "_product", watched)
    with Engine([model], device="cpu") as engine:
        plain = engine.run(REQUESTS[model][0])
        with_them = [
            engine.run(replaced(request, adapters_of(engine, request, tmp_path)))
            for request in REQUESTS[model]
        ]
        left = {
            (component, name)
            for component in takers(find_card(model))
            for name, layer in adaptable(engine.instance(model).component(component).module).items()
            if layer not in altered
        }
        assert altered and left <= UNUSED.get(model, set())
        assert not torch.equal(largest(with_them[0].tensors), largest(plain.tensors))


@pytest.mark.parametrize("model", sorted(REQUESTS))
def test_stacks_in_flight_equal_their_solo_runs(model: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    request = REQUESTS[model][0]
    with Engine([model], device="cpu") as engine:
        stack = adapters_of(engine, request, tmp_path)
        mixed = [replaced(request, adapters, seed) for seed, adapters in enumerate((stack, (), stack))]
        alone = [engine.run(one) for one in mixed]
        for solo, result in zip(alone, engine.run_many(mixed), strict=True):
            assert result.clip is not None, result.error
            for name, tensor in solo.tensors.items():
                assert torch.equal(result.clip.tensors[name], tensor), name


PACKED = {"bagel/tiny": "model", "cosmos3/tiny": "transformer"}
"""Models that pack their samples, and the component that does."""


def packed(model: str, rank: int, folder: Path) -> tuple[list[Tensor], list[Tensor], list[Forwards]]:
    """Frames of three requests alone and together, on all layers an adapter of a rank; and how they ran together."""
    torch.set_num_threads(1)
    with Engine([model], device="cpu", gain=Always(), reuse=False) as engine:
        module = engine.instance(model).component(PACKED[model]).module
        path = write_adapter(
            folder / "a.safetensors",
            factors(module, seed=3, rank=rank),
            prefix=PREFIXES.get(PACKED[model], ""),
        )
        adapters = (Adapter(path=str(path)),)
        first = replace(REQUESTS[model][0], task=TaskType.T2I, inputs=(), steps=2, adapters=adapters)
        if model == "cosmos3/tiny":
            first = replace(first, task=TaskType.T2V, params={})
        requests = [replace(first, prompt="a cat " * number, seed=number) for number in (1, 2, 3)]
        alone = [largest(engine.run(request).tensors) for request in requests]
    with Engine([model], device="cpu", gain=Always(), reuse=False) as engine:
        together = [
            largest(result.clip.tensors) for result in engine.run_many(requests) if result.clip is not None
        ]
        ran = [
            one
            for one in engine.forwards()
            if (one.component == PACKED[model] and one.largest > 1) or one.dependent
        ]
    return alone, together, ran


@pytest.mark.parametrize("rank", [1, 2, 4])
@pytest.mark.parametrize("model", sorted(PACKED))
def test_packed_samples_with_adapters_share_exact_forwards(model: str, rank: int, tmp_path: Path) -> None:
    alone, together, ran = packed(model, rank, tmp_path)
    assert len(ran) == 2 and not any(one.dependent for one in ran)
    assert max(one.largest for one in ran) == 6  # three requests, two branches
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("model", sorted(PACKED))
def test_products_of_a_fixed_number_of_rows_do_not(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: as many rows as products without adapters need are too few for those of a low rank."""
    monkeypatch.setattr(low_rank, "_least", lambda factors: 4)
    alone, together, ran = packed(model, 2, tmp_path)
    assert any(one.dependent for one in ran), "the check of sharing has found it"
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one, other)


def adapters_of(engine: Engine, request: Request, folder: Path) -> tuple[Adapter, ...]:
    """One adapter for each component of the request that takes them, on all of its layers."""
    plan = engine.plan(request)
    running, model = plan.weights, plan.request.model
    made = []
    for component in takers(find_card(model)):
        if component in running:
            layers = factors(engine.instance(model).component(component).module, seed=3, rank=2)
            path = folder / f"{component}.safetensors"
            if not path.exists():
                write_adapter(path, layers, prefix=PREFIXES.get(component, ""))
            made.append(Adapter(path=str(path), scale=0.5))
    return tuple(made)


def replaced(request: Request, adapters: tuple[Adapter, ...], seed: int = 1) -> Request:
    return replace(request, adapters=adapters, seed=seed)


def largest(tensors: Any) -> Tensor:
    found: Tensor = max(tensors.values(), key=lambda tensor: tensor.numel())
    return found


def official(names: dict[str, str]) -> Callable[[str], str]:
    def renamed(name: str) -> str:
        for ours, theirs in names.items():
            name = f".{name}.".replace(f".{ours}.", f".{theirs}.").strip(".")
        return name

    return renamed


def test_the_official_names_of_ltx_bind(tmp_path: Path) -> None:
    """As diffusers 0.42.1 renames them, in both components."""
    with Engine(["ltx2/tiny"], device="cpu") as engine:
        instance, card = engine.instance("ltx2/tiny"), find_card("ltx2/tiny")
        targets = {}
        for component in takers(card):
            names = card.components[component].adapters
            assert names is not None
            targets[component] = Target(module=instance.architecture(component), names=names)
        layers = {
            name: (torch.ones(2, *layer.weight.shape[1:]), torch.ones(layer.weight.shape[0], 2))
            for name, layer in adaptable(targets["transformer"].module).items()
        }
        renamed = official(dict(targets["transformer"].names.original))
        written = {renamed(name): pair for name, pair in layers.items()}
        assert "patchify_proj" in written
        assert "adaln_single.emb.timestep_embedder.linear_1" in written
        path = write_adapter(tmp_path / "ltx.safetensors", written, prefix="diffusion_model.")
        assert bind(find(str(path)), targets).counts() == {"transformer": len(layers)}


def test_a_card_whose_components_take_none_refuses_by_name(tmp_path: Path) -> None:
    card = find_card("wan21/micro")
    components = {name: replace(spec, adapters=None) for name, spec in card.components.items()}
    bare = derive(card, model_id="wan21/bare", components=components)
    path = write_adapter(
        tmp_path / "a.safetensors", {"blocks.0.attn1.to_q": (torch.ones(2, 32), torch.ones(32, 2))}
    )
    with (
        Engine([bare], device="cpu") as engine,
        pytest.raises(FvError, match=r"FV324 .*not taken by wan21/bare"),
    ):
        engine.plan(Request(prompt="a cat", adapters=(Adapter(path=str(path)),)))


def test_an_adapter_of_what_the_task_does_not_run_is_refused(tmp_path: Path) -> None:
    with Engine(["bagel/tiny"], device="cpu") as engine:
        vision = engine.instance("bagel/tiny").architecture("vision")
        with torch.device("cpu"):
            layers = factors(vision, seed=1)
        path = write_adapter(tmp_path / "vision.safetensors", layers, prefix="")
        with pytest.raises(FvError, match=r"FV323 .*alters vision, which task t2i does not run"):
            engine.start(Request(prompt="a cat", adapters=(Adapter(path=str(path)),)))
