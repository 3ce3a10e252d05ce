"""Load-time rules: a sound card has no findings, and each way to break a rule gives exactly its code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fv_core.card import (
    FrameRule,
    LatentSpec,
    Limits,
    LoopSpec,
    ModelCard,
    ParamRule,
    Precision,
    SizeRule,
    derive,
    validate,
)
from fv_core.errors import CardError
from fv_core.program import Compare, ComponentNode, LoopNode, Program, When
from fv_core.request import Size, TaskType
from fv_core.runtime.instance import build_loops

Break = Callable[[ModelCard], ModelCard]


def with_nodes(card: ModelCard, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> ModelCard:
    program = card.programs[TaskType.T2V]
    return derive(card, programs={TaskType.T2V: replace(program, nodes=change(program.nodes))})


def node(card: ModelCard, index: int, **delta: Any) -> ModelCard:
    return with_nodes(
        card, lambda nodes: (*nodes[:index], replace(nodes[index], **delta), *nodes[index + 1 :])
    )


def loop(card: ModelCard, **delta: Any) -> ModelCard:
    return derive(card, loops={**card.loops, "denoise": replace(card.loops["denoise"], **delta)})


def artifacts(card: ModelCard, **slots: str) -> ModelCard:
    return derive(card, programs={TaskType.T2V: replace(card.programs[TaskType.T2V], artifacts=slots)})


FEWER_STEPS = When(field="steps", compare=Compare.EQUAL, value=4)

BREAKS: list[tuple[str, str, Break]] = [
    ("FV201", "assumes_loop", lambda card: derive(card, recipe={"assumes_loop": "flow.unipc2.cfg/v1"})),
    ("FV203", "steps", lambda card: derive(card, recipe={"steps": 0})),
    ("FV203", "steps", lambda card: derive(card, recipe={"steps": 2.5})),
    ("FV203", "sigma_rule", lambda card: derive(card, recipe={"sigma_rule": "linear"})),
    ("FV203", "shift", lambda card: derive(card, recipe={"shift": math.inf}, params={})),
    ("FV203", "shift", lambda card: derive(card, recipe={"shift": 0.0}, params={})),
    ("FV203", "guidance", lambda card: derive(card, recipe={"guidance": 0.5})),
    ("FV203", "guidance", lambda card: derive(card, recipe={"guidance": math.nan})),
    ("FV204", "binds", lambda card: loop(card, binds={"denoiser": "unet"})),
    ("FV204", "component", lambda card: node(card, 0, component="clip")),
    ("FV204", "loop", lambda card: node(card, 2, loop="sample")),
    ("FV204", "when", lambda card: node(card, 1, when=replace(FEWER_STEPS, field="prompt"))),
    ("FV204", "default", lambda card: derive(card, params={"strength": ParamRule(doc="x", highest=1.0)})),
    ("FV205", "reads", lambda card: node(card, 2, reads={"cond": "conditioning"})),
    ("FV205", "reads", lambda card: node(card, 2, optional=())),
    ("FV205", "reads", lambda card: node(card, 0, when=FEWER_STEPS)),
    ("FV205", "reads", lambda card: with_nodes(card, lambda nodes: (*nodes[:2], nodes[3], nodes[2]))),
    ("FV205", "node id", lambda card: node(card, 1, id="encode")),
    ("FV205", "artifacts", lambda card: artifacts(card)),
    ("FV205", "artifacts", lambda card: artifacts(card, video="frames")),
    ("FV205", "artifacts", lambda card: node(card, 3, when=FEWER_STEPS)),
    ("FV207", "size", lambda card: derive(card, defaults={"size": Size(833, 480)})),
    ("FV207", "frames", lambda card: derive(card, defaults={"frames": 80})),
    ("FV207", "fps", lambda card: derive(card, defaults={"fps": 0.0})),
    ("FV207", "params.shift", lambda card: derive(card, recipe={"shift": 30.0})),
    ("FV207", "params.shift", lambda card: derive(card, params={"shift": ParamRule(doc="x", default=True)})),
    ("FV207", "multiple", lambda card: derive(card, limits=Limits(size=SizeRule(multiple=4)))),
    ("FV207", "multiple", lambda card: derive(card, limits=Limits(frames=FrameRule(multiple=2)))),
    ("FV207", "multiple", lambda card: derive(card, latent=LatentSpec(spatial=32))),
    ("FV207", "precision.legal", lambda card: derive(card, precision=Precision(legal=("float32", "bfloat16", "fp8")))),
    ("FV207", "precision.accel", lambda card: derive(card, precision={"legal": ("float32",)})),
    ("FV207", "dtype", lambda card: derive(card, components={
        **card.components, "vae": replace(card.components["vae"], dtype="double")})),
]  # fmt: skip

LOADED: list[tuple[str, str, Break]] = [
    ("FV202", "semantics", lambda card: loop(card, loop="fv_core.loop.vae_decode:VaeDecode")),
    ("FV204", "denoiser_low", lambda card: loop(card, params={"boundary": 0.5})),
    ("FV204", "denoiser_low", lambda card: loop(card, binds={"denoiser": "dit", "denoiser_low": "dit"})),
    ("FV204", "denoiser", lambda card: loop(card, binds={})),
    ("FV206", "tempo", lambda card: loop(card, params={"tempo": 1})),
    ("FV206", "cfg", lambda card: loop(card, params={"cfg": "free"})),
    ("FV206", "boundary", lambda card: loop(card, params={"boundary": True})),
    ("FV206", "boundary", lambda card: loop(card, params={"boundary": 1.5})),
    ("FV206", "guidance_low", lambda card: loop(card, params={"guidance_low": 2.0})),
    ("FV206", "strength", lambda card: derive(card, params={"strength": ParamRule(doc="x", default=0.5)})),
]


def test_sound_card_has_no_findings_and_its_loops_can_be_built(card: ModelCard) -> None:
    assert validate(card) == ()
    assert set(build_loops(card)) == {"denoise", "decode"}


@pytest.mark.parametrize(
    ("code", "names", "broken"), BREAKS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_break_is_found_alone(code: str, names: str, broken: Break, card: ModelCard) -> None:
    findings = validate(broken(card))
    assert [finding.code for finding in findings] == [code], findings
    assert 'card "toy/tiny"' in findings[0].message
    assert names in findings[0].message


@pytest.mark.parametrize(
    ("code", "names", "broken"), LOADED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_needs_the_loop_classes_is_found_when_they_are_built(
    code: str, names: str, broken: Break, card: ModelCard
) -> None:
    changed = broken(card)
    assert validate(changed) == ()
    with pytest.raises(CardError) as caught:
        build_loops(changed)
    assert caught.value.code == code
    assert names in caught.value.message


def test_every_code_of_cards_has_a_card_that_triggers_it() -> None:
    assert {code for code, _, _ in BREAKS + LOADED} == {f"FV20{n}" for n in range(1, 8)}


def test_all_findings_are_told_at_once(card: ModelCard) -> None:
    broken = derive(
        node(card, 2, loop="sample"), recipe={"assumes_loop": "ar/v1", "steps": 0}, defaults={"frames": 2}
    )
    assert [finding.code for finding in validate(broken)] == ["FV201", "FV204", "FV203", "FV207"]


def test_a_read_may_rest_on_a_writer_under_the_same_condition(card: ModelCard) -> None:
    nodes = (
        ComponentNode(
            id="a", label="a", component="text", op="encode", reads={}, writes={"x": "x"}, when=FEWER_STEPS
        ),
        LoopNode(id="b", label="b", loop="denoise", reads={"cond": "x"}, writes={"y": "y"}, when=FEWER_STEPS),
    )
    same = with_nodes(card, lambda own: (*own, *nodes))
    assert validate(same) == ()
    other = with_nodes(
        card, lambda own: (*own, nodes[0], replace(nodes[1], when=replace(FEWER_STEPS, value=5)))
    )
    assert [finding.code for finding in validate(other)] == ["FV205"]


def test_a_card_without_programs_offers_nothing_and_is_sound(card: ModelCard) -> None:
    assert derive(card, programs={}).capabilities == ()
    assert validate(derive(card, programs={})) == ()
    assert validate(derive(card, programs={TaskType.T2V: Program(nodes=())}))[0].code == "FV205"


def test_semantics_of_any_declared_loop_satisfy_the_recipe(card: ModelCard) -> None:
    spec = LoopSpec(loop="toy.loops:Sample", semantics="toy/v1", binds={"denoiser": "dit"})
    other = derive(card, loops={**card.loops, "sample": spec}, recipe={"assumes_loop": "toy/v1"})
    assert validate(other) == ()
