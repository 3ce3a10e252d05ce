"""Gates see what no card of the kit does: calls after a cancel, tensors kept after the end, resumes that go astray."""

from __future__ import annotations

from dataclasses import replace
from threading import Event, Thread
from typing import Any

import pytest
import torch

from fv_core.errors import FvError, RunError
from fv_core.loop.flow_denoise import FlowState
from fv_core.parity import conduct, endings, gates
from fv_core.parity.heeding import reworded
from fv_core.parity.suite import GATES, Suite
from fv_core.parity.trial import GateState, Trial
from fv_core.runtime.job import Job
from fv_core.runtime.run import RequestRun
from fv_core.runtime.snapshots import snapshot
from fv_core.testing.tiny import Denoiser, Vae


def test_a_sound_card_passes_and_every_gate_looks_at_something(trial: Trial) -> None:
    found = list(Suite(trial).results())
    assert [one.gate for one in found] == list(GATES)
    assert [one for one in found if one.state is not GateState.PASSED] == []
    assert [one for one in found if not one.of or one.figure or one.detail] == []


def test_calls_that_go_on_after_a_cancel_are_counted(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    once = Denoiser.velocity

    def twice(self: Any, calls: Any) -> Any:
        return self.forward_batch("again", calls)

    monkeypatch.setattr(Denoiser, "again", once, raising=False)
    monkeypatch.setattr(Denoiser, "velocity", twice)
    found = endings.cancel(trial).result("cancel")
    assert found.state is GateState.FAILED
    assert found.figure == 12  # one of the two forwards of each of 12 shared ones begins after the cancel
    assert "during call 3, made 4 calls" in found.detail


def test_tensors_that_finished_requests_leave_are_counted(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    forward = Vae.prepare

    def keeping(self: Any, calls: Any) -> Any:
        kept.append(torch.zeros(1))
        return forward(self, calls)

    monkeypatch.setattr(Vae, "prepare", keeping)
    found = endings.leak(trial).result("leak")
    assert (found.state, found.figure, found.of) == (GateState.FAILED, 6, 6)  # three rounds of two requests
    assert found.detail.startswith("6 tensors are alive after 6 finished requests")


def test_threads_that_finished_requests_leave_are_counted(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, forward = Event(), Vae.prepare

    def starting(self: Any, calls: Any) -> Any:
        Thread(target=over.wait, name="kit", daemon=True).start()
        return forward(self, calls)

    monkeypatch.setattr(Vae, "prepare", starting)
    found = endings.leak(trial)
    over.set()
    assert [one for one in found.wrong if one.startswith("thread")] == [
        "thread kit runs after 6 finished requests that did not before"
    ] * 6


def test_a_cancel_that_reaches_into_a_neighbour_is_counted(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.alone  # noqa: B018  # before anything is disturbed
    denoiser: Any = trial.engine.instance(trial.card.model_id).component("denoiser")
    fail = Job.fail

    def disturbing(job: Job, error: FvError) -> None:
        fail(job, error)
        denoiser.module.conv.bias.data += 1

    monkeypatch.setattr(Job, "fail", disturbing)
    found = endings.cancel(trial).result("cancel")
    assert found.state is GateState.FAILED
    assert found.detail.startswith("request 2 differs beside request 1, cancelled during call ")


def test_references_that_a_request_does_not_give_back_are_counted(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.alone  # noqa: B018  # everything is loaded
    monkeypatch.setattr("fv_core.runtime.job.Job.close", lambda job: None)
    found = endings.leak(trial).result("leak")
    assert found.state is GateState.FAILED


def test_a_state_that_cannot_be_read_back_is_counted(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fv_core.loop.flow_denoise.FlowDenoise.State", dict)
    found = gates.resume(trial).result("resume")
    assert (found.state, found.of) == (GateState.FAILED, 17)  # 12 of the first request, 5 of the second
    assert found.figure == 7


def test_a_resume_that_comes_to_other_bits_is_counted(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    restore = snapshot.restore

    def nudged(run: RequestRun, taken: snapshot.RequestSnapshot) -> None:
        restore(run, taken)
        if isinstance(run.state, FlowState):
            run.state = replace(run.state, latent=run.state.latent + 1)

    monkeypatch.setattr(snapshot, "restore", nudged)
    found = gates.resume(trial).result("resume")
    assert (found.state, found.figure, found.of) == (GateState.FAILED, 7, 17)
    assert found.detail == "resumed before step 4 of request 1, in denoise, it differs"


@pytest.mark.parametrize("name", [
    "Deaf", "SeedBlind", "ImpureUnguided", "KernelUnguided", "LeakOfTensors", "OtherSpatial", "OtherTemporal",
])  # fmt: skip
def test_a_broken_twin_fails_its_gate_and_none_before(name: str, kit: Any) -> None:
    gate, card = kit.FURTHER[name]
    with Trial(card, device="cpu") as trial:
        suite = Suite(trial)
        for needed in GATES[gate].needs:
            if needed != "determinism":  # starts a process
                assert suite.result(needed).state is GateState.PASSED
        assert GATES[gate].gate(trial).result(gate).state is GateState.FAILED


def test_an_operation_that_depends_on_its_neighbours_fails_by_name_though_the_engine_keeps_the_bits(
    kit: Any,
) -> None:
    with Trial(kit.FURTHER["Rounding"][1], device="cpu") as trial:
        (wrong,) = GATES["batch"].gate(trial).wrong
    assert wrong.startswith("denoiser.velocity gives other bits beside neighbours than alone")


def test_a_clip_of_another_length_is_an_error(kit: Any) -> None:
    with Trial(kit.FURTHER["OtherTemporal"][1], device="cpu") as trial:
        with pytest.raises(RunError) as caught:
            trial.engine.run(trial.requests[0])
        assert caught.value.code == "FV511"
        assert (caught.value.value, caught.value.legal) == ("17 frames of 32x16", "9 frames of 32x16")


def test_what_a_run_changes_of_its_process_is_told(kit: Any) -> None:
    with Trial(kit.BROKEN["Meddling"], device="cpu") as trial:
        assert sorted(gates.process(trial).wrong) == [
            "a run changed environment variable KIT_MEDDLED",
            "a run changed the number of threads",
            "a run changed torch's generator",
        ]


def test_prompts_are_reworded_at_the_same_length() -> None:
    for prompt in (
        "a red circle moving right over a green square",
        "waves break",
        "a red square",
        "ball",
        "x",
    ):
        others = reworded(prompt)
        assert others
        assert prompt not in others
        assert {(len(one), one.count(" ")) for one in others} == {(len(prompt), prompt.count(" "))}


def test_a_card_that_shows_nothing_while_it_decodes_is_told(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fv_core.loop.vae_decode.VaeDecode.emit", lambda *given: ())
    found = conduct.emission(trial).result("emission")
    assert (found.state, found.of, found.detail) == (GateState.PASSED, 0, "no chunk was emitted")
