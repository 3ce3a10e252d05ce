"""Gates see what no card of the kit does: calls after a cancel, tensors kept after the end, resumes that go astray."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fv_core.loop.flow_denoise import FlowState
from fv_core.parity import endings, gates
from fv_core.parity.suite import GATES, Suite
from fv_core.parity.trial import GateState, Trial
from fv_core.runtime import snapshot
from fv_core.runtime.run import RequestRun
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
    assert found.figure == 12  # one of the two forwards of each of twelve calls begins after the cancel
    assert "it made" in found.detail


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
    assert (found.state, found.figure, found.of) == (GateState.FAILED, 2, 2)
    assert found.detail.startswith("2 tensors are alive after 2 finished requests")


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
    assert (found.state, found.of) == (GateState.FAILED, 12)
    assert found.figure == 5


def test_a_resume_that_comes_to_other_bits_is_counted(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    restore = snapshot.restore

    def nudged(run: RequestRun, taken: snapshot.RequestSnapshot) -> None:
        restore(run, taken)
        if isinstance(run.state, FlowState):
            run.state = replace(run.state, latent=run.state.latent + 1)

    monkeypatch.setattr(snapshot, "restore", nudged)
    found = gates.resume(trial).result("resume")
    assert (found.state, found.figure, found.of) == (GateState.FAILED, 5, 12)
    assert found.detail == "resumed before step 4, in denoise, it differs"
