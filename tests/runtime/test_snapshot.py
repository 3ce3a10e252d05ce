"""Snapshots: whole files or none, bound to what they were taken of, and harmless to the run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fv_core import Engine, Request, derive
from fv_core.codec import DecodeError
from fv_core.errors import FvError, RunError
from fv_core.extend import At, Interceptor, InterceptorSpec
from fv_core.loop import CallOutput, ComponentCall
from fv_core.plugins import find_card
from fv_core.request import Size
from fv_core.runtime.job import Job
from fv_core.runtime.snapshots.snapshot import FORMAT, RequestSnapshot, TensorLeaves, _digest
from fv_core.runtime.stores import Counters

Ask = Callable[..., Request]
NOTHING = Counters(requests=0, values=0, value_bytes=0, caches=0, cache_bytes=0)
TINY = find_card("wan21/micro")


@dataclass(frozen=True, kw_only=True)
class Params:
    strength: float = 1.0


@dataclass(frozen=True, kw_only=True)
class State:
    last: torch.Tensor | None = None


class Remember(Interceptor[Params, State]):
    def initial(self, params: Params) -> State:
        return State()

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        return State(last=outputs.tensors["velocity"])


class Unstorable(Remember):
    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: State, params: Params) -> State:
        held: Any = {1, 2}
        return State(last=held)


def spec(factory: str = "Remember") -> InterceptorSpec:
    return InterceptorSpec(
        id=f"test/{factory.lower()}", loop_kinds=("flow_denoise",), distribution_altering=False,
        params=f"{__name__}:Params", factory=f"{__name__}:{factory}",
    )  # fmt: skip


def stepped(engine: Engine, request: Request, steps: int) -> Job:
    job = engine.start(request)
    for _ in range(steps):
        job.step()
    assert job.error is None
    return job


def finished(engine: Engine, job: Job) -> np.ndarray[Any, Any]:
    while not job.done:
        job.step()
    clip = engine.clip(job)
    job.close()
    return clip.frames


def refused(call: Callable[[], object]) -> RunError:
    with pytest.raises(RunError) as caught:
        call()
    assert caught.value.code == "FV504"
    return caught.value


@pytest.fixture
def saved(engine: Engine, ask: Ask, tmp_path: Path) -> Path:
    """A snapshot on disk, taken in the middle of the denoise loop."""
    job = stepped(engine, ask(), 3)
    path = tmp_path / "run.snapshot"
    engine.snapshot(job).save(path)
    job.close()
    return path


def test_file_gives_back_what_was_taken(engine: Engine, ask: Ask, tmp_path: Path) -> None:
    taken = engine.snapshot(stepped(engine, ask(), 3))
    taken.save(tmp_path / "a")
    loaded = RequestSnapshot.load(tmp_path / "a")
    assert (loaded.header, loaded.body) == (taken.header, taken.body)
    assert loaded.tensors.keys() == taken.tensors.keys()
    assert all(torch.equal(tensor, taken.tensors[name]) for name, tensor in loaded.tensors.items())
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_saving_replaces_the_file_whole_or_leaves_it(
    engine: Engine, ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = stepped(engine, ask(), 1)
    path = tmp_path / "a"
    engine.snapshot(job).save(path)
    before = path.read_bytes()
    job.step()
    later = engine.snapshot(job)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            later.save(path)
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    later.save(path)
    assert RequestSnapshot.load(path).header.finished == ("encode", "encode_negative")


def test_taking_a_snapshot_leaves_the_run_alone(engine: Engine, ask: Ask) -> None:
    expected = engine.run(ask()).frames
    job = engine.start(ask())
    while not job.done:
        engine.snapshot(job)
        job.step()
    assert np.array_equal(finished(engine, job), expected)
    assert engine.counters() == NOTHING


def test_one_snapshot_is_resumed_beside_the_run_it_was_taken_of(engine: Engine, ask: Ask) -> None:
    expected = engine.run(ask(frames=9)).frames
    job = stepped(engine, ask(frames=9), 6)
    assert job.run.current.id == "decode"
    taken = engine.snapshot(job)
    jobs = [job, engine.resume(taken), engine.resume(taken)]
    for _ in range(2):
        for each in jobs:
            each.step()
    assert all(np.array_equal(finished(engine, each), expected) for each in jobs)
    assert engine.counters() == NOTHING


def test_finished_run_can_be_snapshotted_and_resumed_to_its_clip(engine: Engine, ask: Ask) -> None:
    job = engine.start(ask())
    while not job.done:
        job.step()
    again = engine.resume(engine.snapshot(job))
    assert again.done
    assert np.array_equal(finished(engine, again), finished(engine, job))


@pytest.mark.parametrize("keep", [0, 1, 8, 100, 0.5, -1])
def test_cut_file_is_refused(keep: float, saved: Path) -> None:
    whole = saved.read_bytes()
    length = int(keep * len(whole)) if isinstance(keep, float) else keep
    saved.write_bytes(whole[:length])
    assert str(saved) in refused(lambda: RequestSnapshot.load(saved)).message


def test_a_flipped_bit_anywhere_is_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    for position in [*range(0, len(whole), len(whole) // 60), len(whole) - 1]:
        damaged = bytearray(whole)
        damaged[position] ^= 4
        saved.write_bytes(damaged)
        refused(lambda: RequestSnapshot.load(saved))
    saved.write_bytes(whole)
    RequestSnapshot.load(saved)


def test_other_files_are_refused(tmp_path: Path) -> None:
    text, tensors, foreign = tmp_path / "text", tmp_path / "tensors", tmp_path / "foreign"
    text.write_text("{}")
    save_file({"x": torch.zeros(1)}, tensors)
    save_file({"x": torch.zeros(1)}, foreign, metadata={"fv": "{}", "sha256": ""})
    for path in (text, tensors, foreign, tmp_path, tmp_path / "absent"):
        refused(lambda path=path: RequestSnapshot.load(path))  # type: ignore[misc]


def test_snapshot_of_another_format_is_refused_by_its_number(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = RequestSnapshot.load(saved)
    with monkeypatch.context() as patch:
        patch.setattr("fv_core.runtime.snapshots.snapshot.FORMAT", 1)
        taken.save(saved)
    assert "format '1': is not 2" in refused(lambda: RequestSnapshot.load(saved)).message


ELSEWHERE: dict[str, tuple[str, dict[str, Any]]] = {
    "another card": ("card_digest", {"models": [derive(TINY, version="2")]}),
    "another precision": ("dtype", {"models": [TINY], "dtype": "bfloat16"}),
    "an interceptor more": ("extensions", {"models": [TINY], "extensions": [spec()]}),
}


@pytest.mark.parametrize("where", ELSEWHERE)
def test_snapshot_is_refused_where_something_else_runs(where: str, saved: Path) -> None:
    name, options = ELSEWHERE[where]
    with Engine(**options, device="cpu") as other:
        assert name in refused(lambda: other.resume(RequestSnapshot.load(saved))).message
        assert other.counters() == NOTHING


def test_snapshot_is_refused_with_another_version_of_the_plugin(
    saved: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fv_core.runtime.records.provenance.plugin_name", lambda instance: "fv-wan21 9.9")
    assert "plugin" in refused(lambda: engine.resume(RequestSnapshot.load(saved))).message


def test_interceptor_parameters_must_be_the_same(ask: Ask) -> None:
    with Engine([TINY], device="cpu", extensions=[(spec(), {"strength": 0.5})]) as engine:
        taken = engine.snapshot(stepped(engine, ask(), 3))
        assert taken.header.extensions == ("test/remember:strength=0.5",)
        assert engine.resume(taken).run.chain.states.keys() == {
            ("test/remember", "cond"),
            ("test/remember", "uncond"),
        }
    with Engine([TINY], device="cpu", extensions=[(spec(), {"strength": 0.6})]) as other:
        assert "extensions" in refused(lambda: other.resume(taken)).message


def test_interceptor_state_that_cannot_be_stored_is_told(ask: Ask) -> None:
    with Engine([TINY], device="cpu", extensions=[spec("Unstorable")]) as engine:
        job = stepped(engine, ask(), 3)
        assert "test/unstorable" in refused(lambda: engine.snapshot(job)).message
        assert len(finished(engine, job)) == 5


Damage = Callable[[RequestSnapshot], RequestSnapshot]


def with_body(**delta: Any) -> Damage:
    return lambda taken: replace(taken, body={**taken.body, **delta})


def with_frontier(taken: RequestSnapshot, **delta: Any) -> RequestSnapshot:
    frontier: Any = taken.body["frontier"]
    return with_body(frontier={"denoise": {**frontier["denoise"], **delta}})(taken)


DAMAGE: dict[str, Damage] = {
    "another state": lambda taken: with_frontier(taken, state={"type": "VaeDecodeState"}),
    "another frontier": with_body(frontier={}),
    "no slots": lambda taken: replace(taken, body={k: v for k, v in taken.body.items() if k != "slots"}),
    "a missing tensor": lambda taken: replace(taken, tensors={}),
    "another value": lambda taken: replace(
        taken, tensors={name: tensor + 1 for name, tensor in taken.tensors.items()}
    ),
    "an unknown interceptor": lambda taken: with_frontier(taken, interceptors=[["test/absent", "cond", {}]]),
    "a node beyond the program": lambda taken: replace(taken, header=replace(taken.header, finished=("x",))),
    "the turn of another node": lambda taken: replace(taken, header=replace(taken.header, turn="decode")),
    "lists for objects": with_body(values=[[]]),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_body_that_does_not_fit_the_card_is_refused_and_leaks_nothing(
    kind: str, engine: Engine, saved: Path
) -> None:
    damaged = DAMAGE[kind](RequestSnapshot.load(saved))
    refused(lambda: engine.resume(damaged))
    assert engine.counters() == NOTHING


EDITS: dict[str, tuple[str, dict[str, Any]]] = {
    "steps": ("FV304", {"steps": 5000}),
    "no steps": ("FV304", {"steps": 0}),
    "size": ("FV302", {"size": Size(17, 16)}),
    "no size": ("FV302", {"size": Size(0, 0)}),
    "frames": ("FV303", {"frames": 6}),
    "guidance": ("FV305", {"guidance": 0.5}),
    "nan": ("FV305", {"guidance": math.nan}),
    "fps": ("FV307", {"fps": 1e9}),
    "seed": ("FV306", {"seed": -1}),
    "prompt": ("FV301", {"prompt": "&nbsp;"}),
    "param": ("FV310", {"params": {"shift": 1e9}}),
    "unknown param": ("FV310", {"params": {"shift": 3.0, "tempo": 1}}),
    "no param": ("FV504", {"params": {}}),
    "keep": ("FV310", {"keep": ("secret",)}),
    "model": ("FV101", {"model": "../../etc"}),
}


@pytest.mark.parametrize("kind", EDITS)
def test_an_edited_request_in_a_sound_file_is_refused_as_a_request_is(
    kind: str, engine: Engine, saved: Path
) -> None:
    code, values = EDITS[kind]
    taken = RequestSnapshot.load(saved)
    header = replace(taken.header, request=replace(taken.header.request, **values))
    replace(taken, header=header).save(saved)  # with the digest of what it now says
    with pytest.raises(FvError) as caught:
        engine.resume(RequestSnapshot.load(saved))
    assert caught.value.code == code
    assert engine.counters() == NOTHING


def test_a_snapshot_of_what_the_interceptors_now_forbid_is_refused(saved: Path) -> None:
    altering = replace(spec(), distribution_altering=True)
    with Engine([TINY], device="cpu", extensions=[altering]) as other:
        taken = RequestSnapshot.load(saved)
        header = replace(taken.header, extensions=("test/remember:strength=1.0",))
        with pytest.raises(FvError) as caught:
            other.resume(replace(taken, header=header))
    assert caught.value.code == "FV314"


def rewritten(path: Path, text: str) -> None:
    """The file with other JSON, and the digest that goes with it."""
    tensors = RequestSnapshot.load(path).tensors
    save_file(tensors, path, metadata={"format": str(FORMAT), "fv": text, "sha256": _digest(text, tensors)})


def parts(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as file:
        stored: dict[str, Any] = json.loads(file.metadata()["fv"])
    return stored


@pytest.mark.parametrize("body", [None, [], 5, "x", True])
def test_a_body_that_is_no_object_is_refused(body: object, saved: Path) -> None:
    rewritten(saved, json.dumps({**parts(saved), "body": body}))
    refused(lambda: RequestSnapshot.load(saved))


@pytest.mark.parametrize("absent", ["body", "header"])
def test_a_missing_part_is_refused(absent: str, saved: Path) -> None:
    stored = parts(saved)
    del stored[absent]
    rewritten(saved, json.dumps(stored))
    assert absent in refused(lambda: RequestSnapshot.load(saved)).message


def test_json_without_end_is_refused_where_it_is_read_and_where_it_is_used(
    saved: Path, engine: Engine
) -> None:
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    taken = RequestSnapshot.load(saved)
    stored = parts(saved)
    for name in taken.body:
        refused(lambda name=name: engine.resume(replace(taken, body={**taken.body, name: nested})))  # type: ignore[misc]
    deep = "[" * 100_000 + "]" * 100_000
    rewritten(saved, json.dumps({**stored, "body": 0})[:-2] + deep + "}")
    assert "recursion" in refused(lambda: RequestSnapshot.load(saved)).message
    assert engine.counters() == NOTHING


SLOTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "another prompt": lambda slots: slots.update({"request.prompt": "another"}),
    "a slot that nothing writes": lambda slots: slots.update(tempo="x"),
    "a value that later nodes read is missing": lambda slots: slots.pop("cond"),
    "a value of a later node": lambda slots: slots.update(video="x"),
}


@pytest.mark.parametrize("kind", SLOTS)
def test_slots_are_those_that_the_run_had(kind: str, saved: Path, engine: Engine) -> None:
    taken = RequestSnapshot.load(saved)
    slots: Any = dict(taken.body["slots"])  # type: ignore[arg-type]
    SLOTS[kind](slots)
    assert (
        "slot" in refused(lambda: engine.resume(replace(taken, body={**taken.body, "slots": slots}))).message
    )
    assert engine.counters() == NOTHING


def test_a_text_where_the_clip_should_be_is_refused(engine: Engine, ask: Ask) -> None:
    job = engine.start(ask())
    while not job.done:
        job.step()
    taken = engine.snapshot(job)
    job.close()
    slots: Any = {**taken.body["slots"], "video": "a film"}  # type: ignore[dict-item]
    assert (
        "video" in refused(lambda: engine.resume(replace(taken, body={**taken.body, "slots": slots}))).message
    )


def test_snapshot_of_another_kind_of_device_is_refused(saved: Path, engine: Engine) -> None:
    taken = RequestSnapshot.load(saved)
    then = replace(taken.header.environment, device="cuda")
    moved = replace(taken, header=replace(taken.header, environment=then))
    assert "device 'cuda'" in refused(lambda: engine.resume(moved)).message


def test_model_that_is_not_this_engines_is_refused(saved: Path) -> None:
    with (
        Engine([derive(TINY, model_id="wan21/other")], device="cpu") as other,
        pytest.raises(FvError) as caught,
    ):
        other.resume(RequestSnapshot.load(saved))
    assert caught.value.code == "FV101"


def test_another_numeric_environment_is_told(saved: Path, engine: Engine) -> None:
    here = engine.resume(RequestSnapshot.load(saved))
    assert here.run.notes == ()
    taken = RequestSnapshot.load(saved)
    then = replace(taken.header.environment, threads=64, versions={"torch": "2.0.0"})
    job = engine.resume(replace(taken, header=replace(taken.header, environment=then)))
    assert "resumed in another environment: threads 64 then, 1 now" in job.run.notes
    assert any("torch 2.0.0 then" in note for note in job.run.notes)
    assert any("diffusers absent then" in note for note in job.run.notes)


def test_tensors_that_alias_are_stored_once_and_views_without_what_they_are_views_of() -> None:
    tensors: dict[str, torch.Tensor] = {}
    leaves = TensorLeaves(tensors, torch.device("cpu"))
    batch = torch.arange(40.0).view(4, 10)
    stored = [
        leaves.encode(each)
        for each in (batch[1], batch[1], batch[2], batch[:, 3], batch.t(), torch.tensor(7.0))
    ]
    assert stored[0] == stored[1]
    assert len(tensors) == 5
    assert all(each.is_contiguous() for each in tensors.values())
    assert all(each.untyped_storage().nbytes() == 4 * each.numel() for each in tensors.values())
    expected = [batch[1], batch[1], batch[2], batch[:, 3], batch.t(), torch.tensor(7.0)]
    for one, value in zip(stored, expected, strict=True):
        decoded = leaves.decode(torch.Tensor, one)
        assert isinstance(decoded, torch.Tensor)
        assert torch.equal(decoded, value)


def test_only_tensors_of_the_device_go_to_the_device_again() -> None:
    """A schedule stays on the host whatever the device is."""
    leaves = TensorLeaves({}, torch.device("meta"))
    stored = leaves.encode(torch.arange(3.0))
    assert isinstance(stored, dict)
    for host, kind in ((True, "cpu"), (False, "meta")):
        decoded = leaves.decode(torch.Tensor, {**stored, "host": host})
        assert isinstance(decoded, torch.Tensor)
        assert decoded.device.type == kind


def test_order_of_dimensions_in_memory_comes_back() -> None:
    leaves = TensorLeaves({}, torch.device("cpu"))
    dense = torch.randn(2, 3, 4, 5, 1, generator=torch.Generator().manual_seed(0))
    for order in ((0, 1, 2, 3, 4), (4, 2, 0, 3, 1), (1, 0, 4, 3, 2)):
        value = dense.permute(order)
        decoded = leaves.decode(torch.Tensor, leaves.encode(value))
        assert isinstance(decoded, torch.Tensor)
        assert torch.equal(decoded, value)
        assert decoded.stride() == value.stride()
    for broken in ([0, 0, 1], [0, 1], "order", None):
        with pytest.raises(DecodeError):
            leaves.decode(torch.Tensor, {"tensor": "t0", "order": broken, "host": True})  # type: ignore[dict-item]


def test_snapshot_holds_each_large_value_once(engine: Engine, ask: Ask, tmp_path: Path) -> None:
    job = stepped(engine, ask(negative_prompt="a red circle"), 3)
    path = tmp_path / "a"
    engine.snapshot(job).save(path)
    with safe_open(path, framework="pt") as file:
        sizes = [file.get_tensor(name).shape for name in file.keys()]  # noqa: SIM118
    assert sizes.count(torch.Size([512, 32])) == 1  # prompt and negative prompt are one value


def test_tensors_in_a_loaded_snapshot_are_aligned(saved: Path) -> None:
    assert all(tensor.data_ptr() % 64 == 0 for tensor in RequestSnapshot.load(saved).tensors.values())
