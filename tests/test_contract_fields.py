"""No contract field without a reader: each is read by what runs, and a field that nothing heeds is reported.

Attribute reads of every contract are recorded while real scenarios run. A read counts for the first module up the
stack that is no contract itself: the runtime, a loop, media, weights, the command line, the plugin machinery or a
plugin. Reads by the codec, by validation and by what dataclasses generate prove nothing and are left out.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from fv_core import Clip, Engine, ModelCard, OutputSpec, Request, TaskType, derive
from fv_core.cli.main import run as fv
from fv_core.cli.presence import presence
from fv_core.cli.show import card_lines
from fv_core.errors import PluginError
from fv_core.extend import At, Interceptor, InterceptorSpec
from fv_core.loop import CallOutput, ComponentCall
from fv_core.parallel import Axis, ParallelPlan
from fv_core.plugins import default_registry, find_card
from fv_core.program import InputSpec, When
from fv_core.request import Modality, ModalPart, Size
from fv_core.runtime.records.samples import sample
from fv_core.runtime.snapshots.snapshot import RequestSnapshot
from fv_core.testing.adapters import write_adapter

CONTRACTS = (
    "fv_core.card",
    "fv_core.program",
    "fv_core.request",
    "fv_core.cache.ref",
    "fv_core.loop.work",
    "fv_core.loop.contract",
    "fv_core.parallel",
    "fv_core.extend.contract",
    "fv_core.plugins.record",
    "fv_core.errors.codes",
)
"""Modules and packages that are contracts and nothing else: a read inside them counts for whoever called."""

WITH_CODE = ("fv_core.media.sidecar", "fv_core.runtime.estimate", "fv_core.runtime.snapshots.snapshot")
"""Modules that have contracts beside the code that reads them."""

TOLD_TO_OTHERS = {"At": "interceptors", "Provenance": "people"}
"""Contracts that fv only writes, and who reads them."""

PROVES_NOTHING = ("fv_core.codec", "fv_core.card.validate", "fv_core.card.reads", "dataclasses", "copy")
WALKERS = {"held_refs", "__post_init__", "__getattribute__"}
READERS = (
    "runtime",
    "parity",
    "loop",
    "extend",
    "media",
    "weights",
    "cli",
    "plugins",
    "cache.stores",
    "errors",
    "adapters",
)

Reads = dict[tuple[type, str], set[str]]


def contracts() -> list[type]:
    found: dict[type, None] = {}
    for name in (*CONTRACTS, *WITH_CODE):
        module = importlib.import_module(name)
        inside = [each.name for each in pkgutil.iter_modules(getattr(module, "__path__", []), f"{name}.")]
        for each in (name, *inside):
            for value in vars(importlib.import_module(each)).values():
                own = dataclasses.is_dataclass(value) and isinstance(value, type) and value.__module__ == each
                if own and value.__name__ not in TOLD_TO_OTHERS:
                    found[value] = None
    return list(found)


def is_contract(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in CONTRACTS)


def reader(frame: FrameType | None, told: bool) -> str | None:
    """The module that a read counts for; None if it proves nothing.

    Args:
        told: the contract is a record that fv tells whole, so that being turned into a dict by a reader counts.
    """
    while frame is not None:
        module, code = str(frame.f_globals.get("__name__")), frame.f_code
        if told and module == "dataclasses" and "asdict" in code.co_name:
            frame = frame.f_back
            continue
        if module in PROVES_NOTHING or code.co_filename == "<string>" or code.co_name in WALKERS:
            return None
        if module.startswith("fv_wan21") or (_is_reader(module) and not is_contract(module)):
            return module
        if not is_contract(module):
            return None
        frame = frame.f_back
    return None


def _is_reader(module: str) -> bool:
    return any(module.startswith(f"fv_core.{name}") for name in READERS)


@contextmanager
def recorded(kinds: list[type], told: tuple[type, ...] = ()) -> Iterator[Reads]:
    """Records who reads which field of `kinds` inside the block."""
    reads: Reads = defaultdict(set)

    def watched(kind: type) -> Callable[[object, str], object]:
        names = {field.name for field in dataclasses.fields(kind)}

        def __getattribute__(self: object, name: str) -> object:
            if name in names and (by := reader(sys._getframe(1), kind in told)) is not None:
                reads[kind, name].add(by)
            return object.__getattribute__(self, name)

        return __getattribute__

    for kind in kinds:
        type.__setattr__(kind, "__getattribute__", watched(kind))
    try:
        yield reads
    finally:
        for kind in kinds:
            type.__delattr__(kind, "__getattribute__")


def unread(kinds: list[type], reads: Reads) -> list[str]:
    return [
        f"{kind.__name__}.{field.name}"
        for kind in kinds
        for field in dataclasses.fields(kind)
        if not reads.get((kind, field.name))
    ]


@dataclass(frozen=True, kw_only=True)
class Params:
    damping: float = 0.9


@dataclass(frozen=True, kw_only=True)
class State:
    steps: int = 0


class Skip(Interceptor[Params, State]):
    """Answers every other step with nothing moving."""

    def initial(self, params: Params) -> State:
        return State()

    def before(self, call: ComponentCall, at: At, state: State, params: Params) -> CallOutput | None:
        latent: Any = call.rows["latent"]
        return CallOutput(tensors={"velocity": latent * params.damping}) if at.step % 2 else None


SKIP = InterceptorSpec(
    id="test/skip", loop_kinds=("flow_denoise",), distribution_altering=True,
    params=f"{__name__}:Params", factory=f"{__name__}:Skip",
)  # fmt: skip


def joint(when: When | None = None) -> ModelCard:
    """The tiny card with both branches in one forward; with `when`, the negative prompt is encoded on it."""
    card = find_card("wan21/micro")
    program = card.programs[TaskType.T2V]
    if when is not None:
        nodes = tuple(replace(node, when=when) if node.when else node for node in program.nodes)
        program = replace(program, nodes=nodes)
    loops = {**card.loops, "denoise": replace(card.loops["denoise"], params={"cfg": "joint"})}
    return derive(card, model_id="wan21/joint", loops=loops, programs={TaskType.T2V: program})


def run_the_engine(folder: Path) -> None:
    """Plain, batched, intercepted, refused, snapshotted and resumed."""
    with pytest.raises(PluginError):
        Engine(device="cpu", extensions=["wan21/absent"])
    small: dict[str, Any] = {"prompt": "a ball", "size": (16, 16), "frames": 5, "steps": 2, "seed": 1}
    keep = OutputSpec(keep=("latent", "cond"))
    with Engine(["wan21/micro", joint()], device="cpu", extensions=[(SKIP, {"damping": 0.5})]) as engine:
        asked = [Request(**small, model=model, output=keep) for model in ("wan21/micro", "wan21/joint")]
        image = ModalPart(modality=Modality.IMAGE, path="x.png")
        refused = [
            Request(**small, inputs=(image,)),
            Request(**{**small, "task": "i2v"}),
            Request(prompt=" "),
        ]
        results = engine.run_many([*asked, *refused], numerics="fast", observer=lambda event: None)
        assert [result.ok for result in results] == [True, True, False, False, False]
        job = engine.start(asked[0], numerics=results[0].clip.request.numerics)  # type: ignore[union-attr]
        while not job.done:
            engine.snapshot(job).save(folder / "run.snapshot")
            job.step()
        job.close()
        again = engine.resume(RequestSnapshot.load(folder / "run.snapshot"))
        while not again.done:
            again.step()
        engine.clip(again).save_automatic(folder)


def run_other_models(folder: Path) -> None:
    """An image that is edited, sound beside frames, chunks that stream, a text that is written."""
    shown = sample(InputSpec(modality=Modality.IMAGE), Size(64, 64), 1)
    picture = folder / "picture.png"
    picture.write_bytes(shown.data)
    brought = (ModalPart(modality=Modality.IMAGE, path=str(picture)),)
    requests = [
        Request(model="bagel/tiny", task=TaskType.EDIT, prompt="red", seed=1, steps=3, inputs=brought),
        Request(model="bagel/tiny", prompt="red", seed=1, steps=3, params={"think": True, "max_tokens": 3}),
        Request(model="ltx2/tiny", prompt="red", seed=1, frames=9),
        Request(model="ltx2/tiny-base", prompt="red", seed=1, frames=9, steps=2, guidance=1.0),
        Request(model="bagel/tiny", task=TaskType.QA, prompt="red?", seed=1, params={"max_tokens": 3}),
        Request(model="wan-causal/tiny", prompt="red", seed=1, frames=9),
        Request(model="cosmos3/tiny", task=TaskType.QA, prompt="red?", seed=1, params={"max_tokens": 3}),
    ]
    with Engine(device="cpu") as engine:
        for request in requests:
            clip = engine.run(request, observer=lambda event: None)
            clip.save(folder / f"{clip.request.task}-{clip.request.model.replace('/', '-')}{suffix(clip)}")
    edit = ["generate", "red", "--model", "bagel/tiny", "--task", "edit", "--steps", "3", "--seed", "1"]
    made = folder / "edited.png"
    assert fv([*edit, "--image", str(picture), "--sidecar", "-o", str(made)]) == 0
    assert fv(["generate", "--from", f"{made}.json", "-o", str(folder / "again.png")]) == 0
    official = folder / "official.pt"
    torch.save({"generator_ema": {"model.odd": torch.zeros(1)}}, official)
    assert fv(["weights", "convert", str(official), str(folder / "converted")]) != 0
    assert fv(["parity", "check", "wan-causal/tiny"]) == 0
    assert fv(["models", "show", "wan-causal/tiny"]) == 0


def suffix(clip: Clip) -> str:
    return ".txt" if clip.artifacts == ("text",) else ".png" if len(clip.frames) == 1 else ".mp4"


def run_the_commands(folder: Path) -> None:
    """What a person does: look, plan, make with a sidecar, repeat, ask why."""
    clip, again = folder / "a.mp4", folder / "b.webp"
    factors = {"blocks.0.attn1.to_q": (torch.ones(2, 32), torch.ones(32, 2))}
    lora = ["--lora", f"{write_adapter(folder / 'lora.safetensors', factors)}:0.5"]
    size = ["--size", "16x16", "--frames", "5", "--steps", "2", "--seed", "3"]
    small = ["--model", "wan21/micro", *size, *lora]
    commands = [
        ["models"], ["models", "--json"], ["models", "show", "wan21/micro"], ["models", "show", "wan21/t2v-14b"],
        ["env"], ["explain", "FV302"], ["explain"], ["plugins"], ["plugins", "--check"], ["plugins", "show", "wan21"],
        ["train", "--list"],
        ["parity", "certify", "wan21/micro"], ["parity", "check", "wan21/micro", "--rung", "C1"],
        ["models", "show", "wan21/micro"],
        ["weights", "list"],
        ["generate", "a ball", *small, "--dry-run"],
        ["generate", "a ball", *small, "--sidecar", "--events", "-o", str(clip)],
        ["generate", "--from", f"{clip}.json", "--json", "-o", str(again)],
    ]  # fmt: skip
    for command in commands:
        assert fv(command) == 0, command
    spread = derive(joint(), parallelism=(ParallelPlan(axes={Axis.SP: 2}),))
    assert any("sp=2" in line for line in card_lines(spread, presence(spread)))  # what `models show` prints
    assert fv(["generate", " ", "--json"]) == 2
    assert fv(["generate", "a ball", "--model", "wan21/t2v-1.3b"]) == 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fv_wan21.components.Denoiser.forward_batch", _fail)
        assert fv(["generate", "a ball", *small, "--events"]) == 1


def _fail(*call: object) -> None:
    raise ArithmeticError


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of this machine, and no plugin that another test has loaded."""
    default_registry.cache_clear()
    monkeypatch.chdir(tmp_path)
    for name in ("FV_HOME", "HF_HOME", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


def told_whole() -> tuple[type, ...]:
    from fv_core.request import Environment, Failed, Finished, Loading, MediaChunk, Started, StepDone, Used

    return (Started, Loading, StepDone, MediaChunk, Finished, Failed, Used, Environment)


def test_every_field_of_every_contract_is_read(tmp_path: Path) -> None:
    kinds = contracts()
    with recorded(kinds, told_whole()) as reads:
        run_the_commands(tmp_path)
        run_the_engine(tmp_path)
        run_other_models(tmp_path)
    nobody = unread(kinds, reads)
    assert not nobody, ", ".join(nobody)


def test_contracts_are_found_where_they_are() -> None:
    names = {kind.__name__ for kind in contracts()}
    assert names >= {"ModelCard", "RecipeSpec", "SizeRule", "When", "LoopNode", "Request", "Used", "CacheRef"}
    assert names >= {
        "WorkPlan",
        "ComponentCall",
        "LoopEnv",
        "InterceptorSpec",
        "PluginRecord",
        "SnapshotHeader",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class WiderWhen(When):
    """A contract with a field that nobody heeds, and one that only its digest and its equality see."""

    unless: str = "never"
    comment: str = ""


def test_control_a_field_that_nothing_heeds_is_reported(tmp_path: Path) -> None:
    card = find_card("wan21/micro")
    original = next(node.when for node in card.programs[TaskType.T2V].nodes if node.when is not None)
    wider = WiderWhen(field=original.field, compare=original.compare, value=original.value)
    changed = joint(when=wider)
    with recorded([WiderWhen]) as reads, Engine([changed], device="cpu") as engine:
        request = Request(prompt="a ball", size=(16, 16), frames=5, steps=1)
        clip = engine.run(request)
        assert clip.used.card_digest == changed.digest()
        assert repr(wider)
        assert wider == replace(wider)
    assert unread([WiderWhen], reads) == ["WiderWhen.unless", "WiderWhen.comment"]
