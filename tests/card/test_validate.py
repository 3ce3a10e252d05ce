"""Load-time rules: a sound card has no findings, and each way to break a rule gives exactly its code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from operator import attrgetter
from typing import Any

import pytest

from fv_core.card import (
    CheckpointManifest,
    FrameRule,
    LatentSpec,
    Limits,
    LoopSpec,
    ModelCard,
    ParamRule,
    ParitySpec,
    Precision,
    SizeRule,
    derive,
    validate,
)
from fv_core.card.validate import PHASES
from fv_core.errors import CODES, CardError
from fv_core.parallel import Axis, ParallelPlan
from fv_core.program import Compare, ComponentNode, InputSpec, LoopNode, Program, When
from fv_core.request import Modality, Size, TaskType
from fv_core.runtime.requests.params import build_loops

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


def plan(card: ModelCard, **axes: Any) -> ModelCard:
    return derive(card, parallelism=(ParallelPlan(axes=axes),))  # type: ignore[arg-type]  # strings, as careless code has


def student(card: ModelCard, limits: tuple[int, int] = (4, 4), **params: Any) -> ModelCard:
    """Weights distilled to four steps."""
    four = derive(card, recipe={"steps": 4, "steps_fixed": True}, limits={"steps": limits})
    return loop(four, params=params)


def causal(card: ModelCard, semantics: str = "causal.euler/v1") -> ModelCard:
    return derive(loop(card, semantics=semantics), recipe={"assumes_loop": semantics})


def claiming(card: ModelCard, *rungs: str, required: str = "") -> ModelCard:
    claim = ParitySpec(reference="x", reference_version="1", runner="x:run", rungs=rungs)
    return derive(card, parity=claim, recipe={"consistency_required": required})


def component(card: ModelCard, **delta: Any) -> ModelCard:
    return derive(card, components={**card.components, "vae": replace(card.components["vae"], **delta)})


def program(card: ModelCard, **delta: Any) -> ModelCard:
    return derive(card, programs={TaskType.T2V: replace(card.programs[TaskType.T2V], **delta)})


def tolerating(card: ModelCard, most: float) -> ModelCard:
    claim = ParitySpec(reference="x", reference_version="1", runner="x:run", tolerance=most)
    return derive(card, parity=claim)


IMAGE = InputSpec(modality=Modality.IMAGE)
FEWER_STEPS = When(field="steps", compare=Compare.EQUAL, value=4)

BREAKS: list[tuple[str, str, Break]] = [
    ("FV201", "assumes_loop", lambda card: derive(card, recipe={"assumes_loop": "flow.unipc2.cfg/v1"})),
    ("FV201", "'vae.decode/v1'", lambda card: derive(card, recipe={"assumes_loop": "vae.decode/v1"})),
    ("FV203", "steps", lambda card: derive(card, recipe={"steps": 0})),
    ("FV217", "recipe.steps 2.5", lambda card: derive(card, recipe={"steps": 2.5})),
    ("FV217", "diffusers>=0.37, wan-official", lambda card: derive(card, recipe={"sigma_rule": "linear"})),
    ("FV217", "recipe.shift inf", lambda card: derive(card, recipe={"shift": math.inf}, params={})),
    ("FV203", "shift", lambda card: derive(card, recipe={"shift": 0.0}, params={})),
    ("FV203", "guidance", lambda card: derive(card, recipe={"guidance": 0.5})),
    ("FV203", "guidance", lambda card: derive(card, recipe={"guidance": 100.5})),
    ("FV203", "recipe.guidance 0.5", lambda card: derive(
        card, recipe={"guidance": 0.5}, limits={"guidance": (1.0, 10.0)})),
    ("FV217", "recipe.guidance nan", lambda card: derive(card, recipe={"guidance": math.nan})),
    ("FV203", "recipe.steps -3", lambda card: derive(card, recipe={"steps": -3})),
    ("FV217", "recipe.steps True", lambda card: derive(card, recipe={"steps": True})),
    ("FV207", "limits.steps", lambda card: derive(card, limits={"steps": (-5, 100)})),
    ("FV207", "limits.steps", lambda card: derive(card, limits={"steps": (0, 100)})),
    ("FV207", "limits.guidance", lambda card: derive(card, limits={"guidance": (0.0, 10.0)})),
    ("FV217", "limits.guidance", lambda card: derive(card, limits={"guidance": (1.0, math.inf)})),
    ("FV217", "params[shift].highest inf", lambda card: derive(
        card, params={"shift": ParamRule(doc="x", lowest=0.1, highest=math.inf)})),
    ("FV207", "1 to 65536", lambda card: derive(card, limits=Limits(frames=FrameRule(largest=10**9)))),
    ("FV217", "holds bytes that no character has", lambda card: derive(
        card, defaults={"negative_prompt": "\ud800"})),
    ("FV219", "programs: are none", lambda card: derive(card, programs={})),
    *(("FV220", "checkpoint.repo", lambda card, repo=repo: derive(card, checkpoint=CheckpointManifest(repo=repo)))
      for repo in ("", "not a repo!!", "a/b/c", "../x", "a..b", "a--b", "a/b.git", "/x", "x/", "a/b\n", 97 * "b")),
    *(("FV220", "checkpoint.revision", lambda card, revision=revision: derive(
        card, checkpoint=CheckpointManifest(repo="a/b", revision=revision)))
      for revision in ("", "../../../x", "main", 39 * "0", 41 * "0", 40 * "A", 40 * "0" + "\n")),
    *(("FV220", "components.vae.subfolders", lambda card, folder=folder: component(card, subfolders=(folder,)))
      for folder in ("", ".", "..", "../../etc", "/etc", "a/../b", "a//b", "a/", "a/.", "a\\b", "vae\n")),
    *(("FV220", "components.vae.files", lambda card, file=file: component(card, files=(file,)))
      for file in ("", "../x", "../x.safetensors", "a/b.safetensors", "x.bin", ".safetensors", "x.safetensors\n")),
    ("FV207", "components.vae.parameters -5", lambda card: component(card, parameters=-5)),
    ("FV216", "family ''", lambda card: derive(card, family="")),
    *(("FV216", "programs.t2v.nodes", lambda card, ident=ident: node(card, 0, id=ident))
      for ident in ("", "a/b", "../../x", "a b", "a.b", "encode\n", "\u00e9")),
    ("FV216", "loops '../x'", lambda card: derive(card, loops={**card.loops, "../x": card.loops["decode"]})),
    ("FV216", "components ''", lambda card: derive(
        card, components={**card.components, "": card.components["vae"]})),
    ("FV216", "params 'a=b'", lambda card: derive(
        card, params={**card.params, "a=b": ParamRule(doc="x", default=0.5)})),
    *(("FV217", "parity.tolerance", lambda card, most=most: tolerating(card, most)) for most in (math.inf, math.nan)),
    ("FV218", "parity.tolerance -1", lambda card: tolerating(card, -1.0)),
    ("FV218", "parity.rungs 'C1': is claimed more than once", lambda card: claiming(card, "C0", "C1", "C1")),
    ("FV218", "parity.runner", lambda card: derive(
        card, parity=ParitySpec(reference="x", reference_version="1"))),
    ("FV221", "sample_rate 0", lambda card: program(card, artifacts={"video": "video", "audio": "latent"})),
    ("FV221", "sample_rate -1", lambda card: program(
        card, artifacts={"video": "video", "audio": "latent"}, sample_rate=-1)),
    ("FV221", "sample_rate 16000", lambda card: program(card, sample_rate=16000)),
    ("FV221", "inputs 'image': is brought 2 times", lambda card: program(card, inputs=(IMAGE, IMAGE))),
    *(("FV221", f"inputs.sizes '{kind}'", lambda card, kind=kind: program(
        card, inputs=(InputSpec(modality=kind, sizes=True),))) for kind in (Modality.AUDIO, Modality.ACTION)),
    ("FV221", "video, audio, text, action", lambda card: artifacts(card, video="video", depth="latent")),
    ("FV221", "programs.t2v.denoise 'image'", lambda card: node(card, 2, tensors=("image",))),
    ("FV221", "programs.t2v.encode 'image'", lambda card: node(card, 0, optional=("image",))),
    ("FV203", "limits.steps '1 to 1000'", lambda card: student(card, (1, 1000))),
    ("FV203", "limits.steps '50 to 50'", lambda card: student(card, (50, 50))),
    ("FV203", "loops.denoise.params.steps 50", lambda card: student(card, steps=50)),
    ("FV204", "binds", lambda card: loop(card, binds={"denoiser": "unet"})),
    ("FV204", "component", lambda card: node(card, 0, component="clip")),
    ("FV204", "loop", lambda card: node(card, 2, loop="sample")),
    ("FV204", "when", lambda card: node(card, 1, when=replace(FEWER_STEPS, field="prompt"))),
    ("FV204", "default", lambda card: derive(card, params={"strength": ParamRule(doc="x", highest=1.0)})),
    ("FV205", "reads", lambda card: node(card, 2, reads={"cond": "conditioning", "uncond": "uncond"})),
    ("FV205", "reads", lambda card: node(card, 2, optional=())),
    ("FV205", "reads", lambda card: node(card, 0, when=FEWER_STEPS)),
    ("FV205", "reads", lambda card: with_nodes(card, lambda nodes: (*nodes[:2], nodes[3], nodes[2]))),
    ("FV205", "artifacts", lambda card: artifacts(card)),
    ("FV205", "artifacts", lambda card: artifacts(card, video="frames")),
    ("FV205", "artifacts", lambda card: node(card, 3, when=FEWER_STEPS)),
    ("FV207", "size", lambda card: derive(card, defaults={"size": Size(833, 480)})),
    ("FV207", "frames", lambda card: derive(card, defaults={"frames": 80})),
    ("FV207", "fps", lambda card: derive(card, defaults={"fps": 0.0})),
    ("FV207", "params.shift", lambda card: derive(card, recipe={"shift": 30.0})),
    ("FV207", "params.shift", lambda card: derive(card, params={"shift": ParamRule(doc="x", default=1.5)})),
    ("FV207", "multiple", lambda card: derive(card, limits=Limits(size=SizeRule(multiple=4)))),
    ("FV207", "multiple", lambda card: derive(card, limits=Limits(frames=FrameRule(multiple=2)))),
    ("FV207", "multiple", lambda card: derive(card, latent=LatentSpec(spatial=32))),
    ("FV207", "precision.legal", lambda card: derive(card, precision=Precision(legal=("float32", "bfloat16", "fp8")))),
    ("FV207", "precision.accel", lambda card: derive(card, precision={"legal": ("float32",)})),
    ("FV207", "dtype", lambda card: derive(card, components={
        **card.components, "vae": replace(card.components["vae"], dtype="double")})),
    ("FV208", "precision 'float64'", lambda card: derive(card, recipe={"precision": "float64"})),
    ("FV208", "precision 'float16'", lambda card: derive(
        card, recipe={"precision": "float16"}, precision={"legal": ("float32", "bfloat16")})),
    ("FV209", "no rung", lambda card: derive(card, recipe={"consistency_required": "C1"})),
    ("FV209", "C0, C1", lambda card: claiming(card, "C0", "C1", required="C2")),
    ("FV209", "consistency_required 'c1'", lambda card: claiming(card, "C1", required="c1")),
    ("FV209", "parity.rungs 'C9'", lambda card: claiming(card, "C1", "C9", required="C1")),
    ("FV218", "C3': is a rung that fv cannot measure yet", lambda card: claiming(card, "C0", "C3", required="C2")),
    ("FV218", "(legal: C0, C1)", lambda card: claiming(card, "C2")),
    ("FV210", "cfgp 3", lambda card: plan(card, cfgp=3)),
    ("FV210", "cfgp 0", lambda card: plan(card, cfgp=0)),
    ("FV217", "axes[dp] 1.5", lambda card: plan(card, dp=1.5)),
    ("FV217", "dp, cfgp, sp, ring", lambda card: plan(card, ep=2)),
    ("FV211", "denoise", lambda card: plan(loop(card, params={"cfg": "joint"}), cfgp=2)),
    ("FV212", "pp_patch 2", lambda card: plan(causal(card), pp_patch=2)),
    ("FV212", "pp_patch 2", lambda card: plan(causal(card, "ar/v1"), pp_patch=2)),
    ("FV213", "pp_patch 2", lambda card: plan(card, pp_patch=2)),
    ("FV213", "tp 2", lambda card: plan(card, tp=2)),
    ("FV213", "ring 2", lambda card: plan(causal(card), ring=2)),
    ("FV207", "limits.size.multiple 0", lambda card: derive(card, limits=Limits(size=SizeRule(multiple=0)))),
    ("FV207", "limits.frames.multiple 0", lambda card: derive(card, limits=Limits(frames=FrameRule(multiple=0)))),
    ("FV207", "limits.size.multiple -16", lambda card: derive(card, limits=Limits(size=SizeRule(multiple=-16)))),
    ("FV207", "latent.spatial 0", lambda card: derive(card, latent=LatentSpec(spatial=0))),
    ("FV207", "latent.temporal 0", lambda card: derive(card, latent=LatentSpec(temporal=0))),
    ("FV207", "latent.channels 0", lambda card: derive(card, latent=LatentSpec(channels=0))),
    ("FV215", "'encode'", lambda card: node(card, 1, id="encode")),
    *(("FV216", "a-z and 0-9", lambda card, ident=ident: derive(card, model_id=ident)) for ident in (
        "", "toy", "/", "toy/", "/tiny", "a/b/c", "../../etc", "../etc", "toy/..", "toy/.tiny", "toy/tiny.",
        "toy/a--b", "toy/a..b", "Toy/tiny", "toy/tiny ", "toy/tiny\n", "toy/t\u00efny", "toy/t\0", "toy\\tiny", "toy/~",
        "toy/$HOME", "toy/a:b", "toy/-a", "toy//tiny")),
    ("FV217", "limits.size.multiple '16'", lambda card: derive(card, limits=Limits(size=SizeRule(multiple="16")))),  # type: ignore[arg-type]
    ("FV217", "limits.steps", lambda card: derive(card, limits={"steps": (1, "9")})),
    ("FV217", "limits.guidance: is not", lambda card: derive(card, limits={"guidance": None})),
    ("FV217", "latent: is not", lambda card: replace(card, latent=None)),  # type: ignore[arg-type]
    ("FV217", "components: is not", lambda card: replace(card, components=None)),  # type: ignore[arg-type]
    ("FV217", "components[text] 'x'", lambda card: derive(card, components={**card.components, "text": "x"})),
    ("FV217", "loops[denoise].binds: is not", lambda card: loop(card, binds=None)),
    ("FV217", "programs: is not", lambda card: replace(card, programs=None)),  # type: ignore[arg-type]
    ("FV217", "nodes[0].id 5", lambda card: node(card, 0, id=5)),
    ("FV207", "when.value 'x'", lambda card: node(card, 1, when=replace(FEWER_STEPS, value="x"))),
    ("FV217", "recipe.shift '3'", lambda card: derive(card, recipe={"shift": "3"}, params={})),
    ("FV217", "recipe.guidance '3'", lambda card: derive(card, recipe={"guidance": "3"})),
    ("FV217", "recipe: is not", lambda card: replace(card, recipe=None)),  # type: ignore[arg-type]
    ("FV217", "defaults.size (832, 480)", lambda card: derive(card, defaults={"size": (832, 480)})),
    ("FV217", "defaults.frames '81'", lambda card: derive(card, defaults={"frames": "81"})),
    ("FV217", "params[shift].highest '9'", lambda card: derive(
        card, params={"shift": ParamRule(doc="x", highest="9")})),  # type: ignore[arg-type]
    ("FV217", "params[shift] 3.0", lambda card: derive(card, params={"shift": 3.0})),
    ("FV217", "files ['x.safetensors']: is not of its declared type (expected a tuple)", lambda card: component(
        card, files=["x.safetensors"])),
    ("FV217", "limits.steps (1, 2, 3): is not of its declared type (expected a tuple of 2)", lambda card: derive(
        card, limits={"steps": (1, 2, 3)})),
    ("FV217", "summary b'x'", lambda card: derive(card, summary=b"x")),
    ("FV217", "model_id 5", lambda card: derive(card, model_id=5)),
    ("FV217", "parallelism[0] 3", lambda card: derive(card, parallelism=(3,))),
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
    (
        "FV221",
        "denoise2.streams 'cond'",
        lambda card: with_nodes(
            card,
            lambda own: (
                *own,
                LoopNode(
                    id="denoise2",
                    label="x",
                    loop="denoise",
                    reads={"cond": "latent"},
                    writes={"latent": "again"},
                    streams=("cond",),
                ),
            ),
        ),
    ),
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
    assert f'card "{broken(card).model_id}"' in findings[0].message
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
    """FV214 needs an engine with an interceptor; FV25x are about weights."""
    of_cards = {code for code in CODES if code.startswith("FV2") and code < "FV250"}
    assert {code for code, _, _ in BREAKS + LOADED} == of_cards - {"FV214"}


@pytest.mark.parametrize(
    "sound",
    [
        lambda card: plan(card, dp=8, cfgp=2, sp=4),
        lambda card: plan(card, tp=1, ring=1, pp_patch=1),
        lambda card: plan(loop(card, params={"cfg": "joint"}), cfgp=1),
        lambda card: plan(loop(card, params={"cfg": "classic"}), cfgp=2),
        lambda card: plan(causal(card), sp=2, pp_patch=1),
        lambda card: student(card, steps=4),
        lambda card: claiming(card, "C0", "C1", required="C0"),
        lambda card: derive(card, parity=ParitySpec(reference="x", reference_version="1", rungs=())),
        lambda card: derive(card, checkpoint=CheckpointManifest(repo="a/b_C-1.3b", revision=40 * "0")),
        lambda card: derive(card, checkpoint=CheckpointManifest(repo="x")),
        lambda card: component(
            card, subfolders=("a/b.c-d", "vae"), files=("ae.safetensors", "a-1.safetensors")
        ),
        lambda card: program(card, artifacts={"video": "video", "audio": "latent"}, sample_rate=16000),
        lambda card: program(card, inputs=(replace(IMAGE, sizes=True),)),
        lambda card: derive(card, limits=Limits(frames=FrameRule(largest=65536))),
        lambda card: derive(card, recipe={"precision": "bfloat16"}),
    ],
)
def test_what_a_rule_allows_is_not_found(sound: Break, card: ModelCard) -> None:
    assert validate(sound(card)) == ()


def test_axes_are_those_of_the_core() -> None:
    assert [axis.value for axis in Axis] == ["dp", "cfgp", "sp", "ring", "tp", "pp_patch"]
    assert ParallelPlan(axes={Axis.DP: 2}).degree(Axis.SP) == 1


def test_a_value_of_another_type_does_not_hide_what_other_rules_find(card: ModelCard) -> None:
    broken = derive(card, model_id="toy", recipe={"steps": 0}, limits={"frames": 5}, summary=None)
    assert [finding.code for finding in validate(broken)] == ["FV217", "FV217", "FV216", "FV203"]


ODD: list[object] = [
    None,
    0,
    -1,
    1.5,
    math.nan,
    "",
    "x",
    b"x",
    (),
    (None,),
    {},
    {"x": None},
    {1},
    object(),
    Limits,
    len,
]


def leaves(value: object, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths to all fields of a card, those of its parts included."""
    found = []
    for field in fields(value):  # type: ignore[arg-type]
        here = (*path, field.name)
        found.append(here)
        if is_dataclass(part := getattr(value, field.name)):
            found += leaves(part, here)
    return found


def with_value(whole: Any, path: tuple[str, ...], value: object) -> Any:
    first, *rest = path
    return replace(whole, **{first: with_value(getattr(whole, first), tuple(rest), value) if rest else value})


def test_any_value_anywhere_gives_findings_and_raises_nothing(card: ModelCard) -> None:
    wide = derive(
        card,
        parity=ParitySpec(reference="x", reference_version="1", runner="x:run"),
        checkpoint=CheckpointManifest(repo="x"),
        parallelism=(ParallelPlan(axes={Axis.SP: 2}),),
    )
    assert validate(wide) == ()
    for path in leaves(wide):
        for odd in ODD:
            for finding in validate(with_value(wide, path, odd)):
                assert isinstance(finding, CardError)
                assert finding.message


def test_all_findings_are_told_at_once_but_what_may_follow_from_another(card: ModelCard) -> None:
    broken = derive(
        node(card, 2, loop="sample"), recipe={"assumes_loop": "ar/v1"}, defaults={"frames": 2}, family=""
    )
    assert [finding.code for finding in validate(broken)] == ["FV216", "FV204", "FV207"]
    mended = derive(broken, programs=card.programs, family="toy")
    assert [finding.code for finding in validate(mended)] == ["FV201", "FV207"]
    without = derive(mended, recipe={"steps": 0})
    assert [finding.code for finding in validate(without)] == ["FV203", "FV201", "FV207"]


def test_rules_rest_on_fields_that_a_card_has(card: ModelCard) -> None:
    claimed = claiming(card, "C1")
    for part in {part for phase in PHASES for rule in phase for part in rule.parts}:
        attrgetter(part)(claimed if part.startswith("parity.") else card)


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


def test_a_program_without_nodes_runs_and_yields_nothing(card: ModelCard) -> None:
    empty = derive(card, programs={TaskType.T2V: Program(nodes=())})
    assert [finding.code for finding in validate(empty)] == ["FV201", "FV205"]


def test_the_loop_that_the_recipe_assumes_is_one_that_a_program_runs(card: ModelCard) -> None:
    """A card could otherwise declare the right loop, and run another."""
    spec = LoopSpec(loop="toy.loops:Sample", semantics="toy/v1", binds={"denoiser": "dit"})
    loops = {**card.loops, "sample": spec}
    idle = derive(card, loops=loops, recipe={"assumes_loop": "toy/v1"})
    assert [finding.code for finding in validate(idle)] == ["FV201"]
    assert validate(node(idle, 2, loop="sample")) == ()
