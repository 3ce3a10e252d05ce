"""What every card's loops and components must keep to, as tests that a subclass inherits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from fv_core.card import ModelCard
from fv_core.plugins import find_card
from fv_core.request import Request

if TYPE_CHECKING:
    from fv_core.parity.order import Ordered
    from fv_core.parity.suite import Suite


class CardConformance:
    """Inherit it in a class named `Test...` and say which card.

    A test that can tell nothing because an earlier one failed is skipped and names it.

    Attributes:
        card_id: id of an installed card. card: a card itself, in place of an id.
        device, dtype, weights: where and how it runs, as `Engine` takes them.
        requests: what is run, at least two that differ; empty: small ones made from the card's limits.
    """

    card_id: ClassVar[str] = ""
    card: ClassVar[ModelCard | None] = None
    device: ClassVar[str] = "cpu"
    dtype: ClassVar[str] = "auto"
    weights: ClassVar[Path | None] = None
    requests: ClassVar[Sequence[Request]] = ()

    @pytest.fixture(scope="class")
    @classmethod
    def suite(cls) -> Iterator[Suite]:
        """The gates on one engine for the whole class, with one thread: bits depend on their number."""
        import torch  # late, with all that needs it: a session that runs none of these tests loads none of it

        from fv_core.parity.suite import Suite
        from fv_core.parity.trial import Trial

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        options = {name: getattr(cls, name) for name in ("device", "dtype", "weights", "requests")}
        with Trial(cls.card or find_card(cls.card_id), **options) as trial:
            yield Suite(trial)
        torch.set_num_threads(threads)

    def test_card_breaks_no_load_time_rule(self, suite: Suite) -> None:
        pass_gate("validation", suite)

    def test_requests_run_to_finite_results(self, suite: Suite) -> None:
        pass_gate("finite", suite)

    def test_memory_is_claimed_before_it_is_taken(self, suite: Suite) -> None:
        pass_gate("memory", suite)

    def test_next_runs_no_kernel(self, suite: Suite) -> None:
        pass_gate("next", suite)

    def test_predict_and_update_are_pure(self, suite: Suite) -> None:
        pass_gate("purity", suite)

    def test_emissions_are_the_clip_in_order(self, suite: Suite) -> None:
        pass_gate("emission", suite)

    def test_seed_decides_the_bits_here_and_in_a_new_process(self, suite: Suite) -> None:
        pass_gate("determinism", suite)

    def test_runs_change_nothing_of_the_process(self, suite: Suite) -> None:
        pass_gate("process", suite)

    def test_seed_and_prompt_are_heeded(self, suite: Suite) -> None:
        pass_gate("inputs", suite)

    def test_requests_never_reach_into_each_others_caches(self, suite: Suite) -> None:
        pass_gate("partition", suite)

    def test_interleaved_requests_equal_those_that_run_alone(self, suite: Suite) -> None:
        pass_gate("interleave", suite)

    def test_requests_stepped_together_do_not_look_at_each_other(self, suite: Suite) -> None:
        pass_gate("batch", suite)

    def test_snapshot_at_every_step_comes_back(self, suite: Suite) -> None:
        pass_gate("resume", suite)

    def test_cancel_stops_within_one_component_call(self, suite: Suite) -> None:
        pass_gate("cancel", suite)

    def test_cancelled_requests_leave_nothing(self, suite: Suite) -> None:
        pass_gate("cancel_leak", suite)

    def test_finished_requests_leave_nothing(self, suite: Suite) -> None:
        pass_gate("leak", suite)


def pass_gate(gate: str, suite: Ordered[Any]) -> None:
    """Fails the running test where the gate fails; skips it where an earlier gate has to pass first."""
    found = suite.result(gate)
    if found.state == "blocked":
        pytest.skip(found.detail)
    assert found.state == "passed", f"{found.figure} of {found.of} {found.counted}: {found.detail}"
