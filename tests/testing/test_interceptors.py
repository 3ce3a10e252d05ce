"""The suite passes for sound interceptors and fails for each broken one, by exactly the test that is meant for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from fv_core.card import ModelCard
from fv_core.testing import InterceptorConformance

RECORD = "test_record_is_sound_and_its_factory_loads"
ANSWERS = "test_answers_are_like_what_is_computed"
RUNS = "test_requests_run_to_finite_results"
PURE = "test_hooks_are_pure"
STATE = "test_state_comes_back_from_a_snapshot"

MEANT: dict[str, tuple[str, int]] = {
    "Sound": ("", 0),
    "Honest": ("", 0),
    "NoNamespace": (RECORD, 14),
    "UnknownKind": (RECORD, 14),
    "Absent": (RECORD, 14),
    "LooseParams": (RECORD, 14),
    "AnyParams": ("test_unknown_and_ill_typed_parameters_are_refused", 0),
    "WrongShape": (ANSWERS, 11),
    "WrongType": (ANSWERS, 11),
    "Raising": (RUNS, 10),
    "NotFinite": (RUNS, 10),
    "InPlace": (PURE, 9),
    "StateInPlace": (PURE, 9),
    "Random": (PURE, 9),
    "Unstorable": (STATE, 1),
    "OtherType": (STATE, 1),
    "Wearing": ("test_a_second_run_comes_to_the_same_bits", 3),
    "OneMemory": ("test_branches_are_apart", 2),
    "MemoryPerBranch": ("test_interleaved_requests_equal_those_that_run_alone", 1),
    "MemoryPerPrompt": ("test_resumed_after_any_step_equals_uninterrupted", 0),
    "Patching": ("test_engines_without_it_keep_every_bit", 0),
    "Printing": ("test_hooks_print_nothing", 0),
    "Leaking": ("test_finished_requests_leave_nothing", 0),
    "Late": ("test_what_it_says_of_altering_is_true", 0),
    "Untrue": ("test_what_it_says_of_altering_is_true", 0),
}
"""By what is wrong: the test that must fail, and how many tests can tell nothing beside it."""

AUTHORS_TESTS = """
import interceptors
from fv_core import Request
from fv_core.testing import InterceptorConformance

PROMPTS = ("a red circle", "a blue square")
SMALL = {"size": (16, 16), "frames": 5, "steps": 4, "guidance": 3.0}
for name, spec in {**interceptors.SOUND, **interceptors.BROKEN}.items():
    facts = {"interceptor": spec}
    if name == "MemoryPerPrompt":
        facts["requests"] = [Request(prompt=p, negative_prompt=f"not {p}", seed=1, **SMALL) for p in PROMPTS]
    globals()["Test" + name] = type("Test" + name, (InterceptorConformance,), facts)
"""

Outcomes = Mapping[str, Mapping[str, set[str]]]


@pytest.fixture(scope="module")
def outcomes(run_as_author: Callable[[str], Outcomes]) -> Outcomes:
    """Interceptor -> outcome -> names of tests."""
    return run_as_author(AUTHORS_TESTS)


@pytest.mark.parametrize("wrong", MEANT)
def test_suite_fails_by_exactly_the_test_that_is_meant(wrong: str, outcomes: Outcomes) -> None:
    found, (meant, blocked) = outcomes[wrong], MEANT[wrong]
    assert found["error"] == set()
    assert found["failure"] == {meant} - {""}
    assert len(found["skipped"]) == blocked
    assert len(found["passed"]) == len(inherited()) - blocked - bool(meant)


def test_every_inherited_test_has_an_interceptor_that_it_is_meant_for() -> None:
    without = {"test_it_is_refused_where_it_must_not_act"}  # no class can evade what the engine refuses
    assert inherited() == {meant for meant, _ in MEANT.values()} - {""} | without


def inherited() -> set[str]:
    return {name for name in vars(InterceptorConformance) if name.startswith("test_")}


@pytest.fixture
def trial(interceptors: Any, tiny_card: ModelCard) -> Any:
    from fv_core.parity.interception import InterceptorTrial

    with InterceptorTrial(interceptors.SOUND["Sound"], tiny_card, device="cpu") as made:
        yield made


def test_an_interceptor_that_sees_no_call_is_told(trial: Any) -> None:
    from fv_core.parity import interceptor_hooks

    assert interceptor_hooks.runs(trial).wrong == []
    trial.spec = replace(trial.spec, loop_kinds=("ar_decode",))
    first, second = interceptor_hooks.runs(trial).wrong
    assert first == second == "the request has no work of its kinds, ar_decode"


def test_what_engines_no_longer_refuse_is_told(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fv_core.parity import interceptor_runs

    assert interceptor_runs.refusal(trial).wrong == []
    monkeypatch.setattr("fv_core.runtime.extensions.check_numerics", lambda *given: None)
    monkeypatch.setattr(interceptor_runs, "check_recipe", lambda *given: None)
    exact, fixed = interceptor_runs.refusal(trial).wrong
    assert "an exact request takes it" in exact
    assert "a recipe of a fixed number of steps takes it" in fixed


def test_every_gate_looks_at_something(trial: Any) -> None:
    from fv_core.parity.interceptor_suite import InterceptorSuite

    found = list(InterceptorSuite(trial).results())
    assert [one.gate for one in found if not one.of] == ["truth"]  # it says that it alters


def test_an_interceptor_is_found_by_its_id(
    interceptors: Any, fake_dist: Any, tiny_card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fv_core.parity.interception import InterceptorTrial

    fake_dist(
        "kit",
        "import interceptors\nfrom fv_core.hookspecs import hookimpl\nfv_api = 1\n"
        "@hookimpl\ndef fv_interceptors():\n    return [interceptors.SOUND['Sound']]\n",
    )
    with InterceptorTrial("kit/sound", tiny_card, device="cpu", params={"keep_first": 3}) as made:
        answered = [moment.plan.step for moment in made.moments(made.requests[0]) if moment.answered]
    assert answered == [step for step in (3, 5, 7, 9, 11) for _ in range(2)]
