"""The suite passes for a sound card and fails for each broken one, by exactly the test that is meant for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

MEANT = {
    "Good": "",
    "Overweight": "test_memory_is_claimed_before_it_is_taken",
    "KernelInNext": "test_next_runs_no_kernel",
    "ImpureUpdate": "test_predict_and_update_are_pure",
    "GlobalState": "test_interleaved_requests_equal_those_that_run_alone",
    "Nan": "test_requests_run_to_finite_results",
    "WrongOrder": "test_emissions_are_the_clip_in_order",
    "Unserialisable": "test_snapshot_at_every_step_comes_back",
    "LeakOnCancel": "test_cancelled_requests_leave_nothing",
    "Unseeded": "test_seed_decides_the_bits_here_and_in_a_new_process",
    "HashSeeded": "test_seed_decides_the_bits_here_and_in_a_new_process",
    "SharedReference": "test_requests_never_reach_into_each_others_caches",
    "OneBuffer": "test_requests_never_reach_into_each_others_caches",
    "Mixing": "test_requests_stepped_together_do_not_look_at_each_other",
    "Memo": "test_seed_and_prompt_are_heeded",
    "Meddling": "test_runs_change_nothing_of_the_process",
    "LeakOfArrays": "test_finished_requests_leave_nothing",
    "Invalid": "test_card_breaks_no_load_time_rule",
}
"""A card of `kit` by what is wrong with it, and the test that must fail."""

BLOCKED = {
    "GlobalState": 1, "SharedReference": 3, "OneBuffer": 3, "Unseeded": 5, "HashSeeded": 5, "Nan": 14, "Invalid": 15,
}  # fmt: skip
"""How many tests can tell nothing beside the one that fails."""

BESIDE = {
    "GlobalState": {"test_cancel_stops_within_one_component_call", "test_snapshot_at_every_step_comes_back"},
    "Unseeded": {"test_cancel_stops_within_one_component_call"},
}
"""What else cannot hold: who is beside a cancelled request must come to its bits alone."""

AUTHORS_TESTS = """
import subprocess
from pathlib import Path
from types import SimpleNamespace

import kit
import pytest
import torch
from fv_core.parity import again
from fv_core.testing import CardConformance

def run_here(command, **how):
    threads = torch.get_num_threads()
    again.main(Path(command[-1]))
    torch.set_num_threads(threads)
    return subprocess.CompletedProcess(command, 0)

class Here(CardConformance):
    "Has its second process in this one: a new one takes most of a suite's time."

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def no_process(cls):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(again, "subprocess", SimpleNamespace(run=run_here))
            yield

NEW = {"Good", "Unseeded", "HashSeeded", "Meddling"}  # of which a new process tells something else
CARDS = {"Good": kit.GOOD, **kit.BROKEN}
for name, card in CARDS.items():
    suite = CardConformance if name in NEW else Here
    globals()["Test" + name] = type("Test" + name, (suite,), {"card": card})
"""

Outcomes = Mapping[str, Mapping[str, set[str]]]


@pytest.fixture(scope="module")
def outcomes(run_as_author: Callable[[str], Outcomes]) -> Outcomes:
    """Card -> outcome -> names of tests."""
    return run_as_author(AUTHORS_TESTS)


@pytest.mark.parametrize("wrong", MEANT)
def test_suite_fails_by_exactly_the_test_that_is_meant(wrong: str, outcomes: Outcomes) -> None:
    found = outcomes[wrong]
    assert found["error"] == set()
    assert found["failure"] == {MEANT[wrong], *BESIDE.get(wrong, ())} - {""}
    assert len(found["skipped"]) == BLOCKED.get(wrong, 0)
    assert len(found["passed"]) == len(inherited()) - BLOCKED.get(wrong, 0) - len(found["failure"])


def test_every_inherited_test_has_a_card_that_it_is_meant_for() -> None:
    without = {"test_cancel_stops_within_one_component_call"}
    assert inherited() == set(MEANT.values()) - {""} | without


def inherited() -> set[str]:
    from fv_core.testing import CardConformance

    return {name for name in vars(CardConformance) if name.startswith("test_")}
