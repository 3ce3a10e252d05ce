"""The storage gate: loops that bind a component share its memory, and what a request does not need is never loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from fv_core import Engine, LoopSpec, ModelCard, Request, TaskType, derive
from fv_core.card import ComponentSpec
from fv_core.plugins import find_card
from fv_core.program import LoopNode, Program
from fv_core.runtime.job import Job

Ask = Callable[..., Request]
TINY = find_card("wan21/micro")
PROGRAM = TINY.programs[TaskType.T2V]
ENCODE, ENCODE_NEGATIVE, DENOISE, DECODE = PROGRAM.nodes


def with_loops(loops: Mapping[str, LoopSpec], program: Program, **more: Any) -> ModelCard:
    return derive(TINY, loops={**TINY.loops, **loops}, programs={TaskType.T2V: program}, **more)


def twice() -> ModelCard:
    """Denoises twice, by two loops that bind one transformer."""
    assert isinstance(DENOISE, LoopNode)
    again = replace(DENOISE, id="again", loop="again", writes={"latent": "second"})
    decode = replace(DECODE, reads={"latent": "second"})
    program = replace(PROGRAM, nodes=(ENCODE, ENCODE_NEGATIVE, DENOISE, again, decode))
    return with_loops({"again": TINY.loops["denoise"]}, program)


def with_experts(boundary: float, low: str) -> ModelCard:
    """Two experts that part at `boundary`; `low` is the component of the low-noise one."""
    components: dict[str, ComponentSpec] = {**TINY.components}
    components.setdefault(low, TINY.components["transformer"])
    binds = {"denoiser": "transformer", "denoiser_low": low}
    denoise = replace(TINY.loops["denoise"], binds=binds, params={"boundary": boundary})
    return with_loops({"denoise": denoise}, PROGRAM, components=components)


def storages(engine: Engine, component: str) -> list[int]:
    module = engine.instance("wan21/micro").component(component).module
    return [parameter.data_ptr() for parameter in module.parameters()]


def finish(job: Job) -> Job:
    while not job.done:
        job.step()
    assert job.error is None
    return job


def modules_of_forwards(engine: Engine, component: str) -> list[int]:
    """Fills with the first parameter's address of each forward of the component's module."""
    seen: list[int] = []
    module = engine.instance("wan21/micro").component(component).module
    module.register_forward_pre_hook(lambda module, args: seen.append(next(module.parameters()).data_ptr()))
    return seen


@pytest.mark.parametrize("card", [twice(), with_experts(0.8, "transformer")], ids=["two loops", "two roles"])
def test_a_component_that_is_bound_twice_is_one_storage(card: ModelCard, ask: Ask) -> None:
    with (
        Engine([TINY], device="cpu", max_batch=1) as plain,
        Engine([card], device="cpu", max_batch=1) as engine,
    ):
        finish(plain.start(ask(steps=3)))
        seen = modules_of_forwards(engine, "transformer")
        finish(engine.start(ask(steps=3)))
        assert set(seen) == {storages(engine, "transformer")[0]}
        assert len(seen) == (12 if "again" in card.loops else 6)
        one, other = plain.instance("wan21/micro"), engine.instance("wan21/micro")
        assert sorted(other.loaded) == sorted(one.loaded)
        assert other.resident_bytes() == one.resident_bytes()


def test_a_component_of_its_own_is_counted_on_its_own(ask: Ask) -> None:
    with Engine([TINY], device="cpu") as plain, Engine([with_experts(0.8, "low")], device="cpu") as engine:
        finish(plain.start(ask(steps=3)))
        finish(engine.start(ask(steps=3)))
        assert not set(storages(engine, "transformer")) & set(storages(engine, "low"))
        more = (
            engine.instance("wan21/micro").resident_bytes() - plain.instance("wan21/micro").resident_bytes()
        )
        low = engine.instance("wan21/micro").component("low").module
        assert more == sum(tensor.nbytes for tensor in (*low.parameters(), *low.buffers()))


def test_requests_share_the_components_of_their_engine(engine: Engine, ask: Ask) -> None:
    finish(engine.start(ask()))
    before = {name: storages(engine, name) for name in TINY.components}
    resident = engine.instance("wan21/micro").resident_bytes()
    engine.run_many([ask(seed=2), ask(seed=3, size=(32, 16))], numerics="fast")
    assert {name: storages(engine, name) for name in TINY.components} == before
    assert engine.instance("wan21/micro").resident_bytes() == resident
    assert resident >= sum(4 * spec.parameters for spec in TINY.components.values())


def test_components_load_one_by_one_when_a_step_first_needs_them(engine: Engine, ask: Ask) -> None:
    job = engine.start(ask())
    loaded: dict[str, tuple[str, ...]] = {}
    while not job.done:
        node = job.run.current.id
        job.step()
        loaded[node] = engine.instance("wan21/micro").loaded
    assert loaded == {
        "encode": ("text",),
        "encode_negative": ("text",),
        "denoise": ("text", "transformer"),
        "decode": ("text", "transformer", "vae"),
    }


@pytest.mark.parametrize(("boundary", "unreached"), [(0.0, "low"), (1.0, "transformer")])
def test_an_expert_that_no_step_reaches_is_never_loaded(boundary: float, unreached: str, ask: Ask) -> None:
    with Engine([with_experts(boundary, "low")], device="cpu") as engine:
        engine.run(ask(steps=3))
        reached = {"low", "transformer"} - {unreached}
        assert set(engine.instance("wan21/micro").loaded) == {"text", "vae"} | reached


def test_a_program_that_only_denoises_never_loads_a_decoder(ask: Ask) -> None:
    program = Program(nodes=(ENCODE, ENCODE_NEGATIVE, DENOISE), artifacts={"video": "latent"})
    with Engine([with_loops({}, program)], device="cpu") as engine:
        job = finish(engine.start(replace(ask(), output=replace(ask().output, keep=("latent",)))))
        assert engine.instance("wan21/micro").loaded == ("text", "transformer")
        latent = job.run.tensor("latent")
    with Engine([TINY], device="cpu") as plain:
        assert torch.equal(plain.run(ask()).tensors["latent"], latent)


def test_plan_and_refusals_load_nothing(engine: Engine, ask: Ask) -> None:
    engine.plan(ask())
    engine.run_many([ask(prompt=" "), ask(size=(17, 16))])
    job = engine.start(ask())
    job.close()
    assert engine.instance("wan21/micro").loaded == ()
    assert engine.instance("wan21/micro").resident_bytes() == 0


def test_closing_lets_the_weights_go(ask: Ask) -> None:
    engine = Engine([TINY], device="cpu")
    engine.run(ask())
    instance = engine.instance("wan21/micro")
    engine.close()
    assert instance.loaded == ()
    assert instance.resident_bytes() == 0
