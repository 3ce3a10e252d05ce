"""What every interceptor must keep to, as tests that a subclass inherits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import pytest

from fv_core.card import ModelCard
from fv_core.extend import InterceptorSpec
from fv_core.request import Request
from fv_core.testing.conformance import pass_gate

if TYPE_CHECKING:
    from fv_core.parity.interceptor_suite import InterceptorSuite


class InterceptorConformance:
    """Inherit it in a class named `Test...` and say which interceptor.

    A test that can tell nothing because an earlier one failed is skipped and names it.

    Attributes:
        interceptor: id of an installed interceptor, or its record.
        params: what it is switched on with; such that it acts within the steps of the requests.
        card: what it is tried on; None: the fixture `tiny_card`.
        device, dtype: where and how it runs, as `Engine` takes them.
        requests: what is run, at least two that differ; empty: small ones made from the card's limits. Those of fewer
            than 12 steps take 12 where the card allows.
    """

    interceptor: ClassVar[str | InterceptorSpec] = ""
    params: ClassVar[Mapping[str, float | int | str | bool]] = {}
    card: ClassVar[ModelCard | None] = None
    device: ClassVar[str] = "cpu"
    dtype: ClassVar[str] = "auto"
    requests: ClassVar[Sequence[Request]] = ()

    @pytest.fixture(scope="class")
    @classmethod
    def suite(cls, tiny_card: ModelCard) -> Iterator[InterceptorSuite]:
        """The gates on one pair of engines for the whole class, with one thread: bits depend on their number."""
        import torch  # late, with all that needs it: a session that runs none of these tests loads none of it

        from fv_core.parity.interception import InterceptorTrial
        from fv_core.parity.interceptor_suite import InterceptorSuite

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        options = {name: getattr(cls, name) for name in ("params", "device", "dtype", "requests")}
        with InterceptorTrial(cls.interceptor, cls.card or tiny_card, **options) as trial:
            yield InterceptorSuite(trial)
        torch.set_num_threads(threads)

    def test_record_is_sound_and_its_factory_loads(self, suite: InterceptorSuite) -> None:
        pass_gate("record", suite)

    def test_unknown_and_ill_typed_parameters_are_refused(self, suite: InterceptorSuite) -> None:
        pass_gate("params", suite)

    def test_answers_are_like_what_is_computed(self, suite: InterceptorSuite) -> None:
        pass_gate("answers", suite)

    def test_requests_run_to_finite_results(self, suite: InterceptorSuite) -> None:
        pass_gate("runs", suite)

    def test_hooks_are_pure(self, suite: InterceptorSuite) -> None:
        pass_gate("purity", suite)

    def test_hooks_print_nothing(self, suite: InterceptorSuite) -> None:
        pass_gate("quiet", suite)

    def test_state_comes_back_from_a_snapshot(self, suite: InterceptorSuite) -> None:
        pass_gate("state", suite)

    def test_a_second_run_comes_to_the_same_bits(self, suite: InterceptorSuite) -> None:
        pass_gate("repetition", suite)

    def test_branches_are_apart(self, suite: InterceptorSuite) -> None:
        pass_gate("branches", suite)

    def test_interleaved_requests_equal_those_that_run_alone(self, suite: InterceptorSuite) -> None:
        pass_gate("interleave", suite)

    def test_resumed_after_any_step_equals_uninterrupted(self, suite: InterceptorSuite) -> None:
        pass_gate("resume", suite)

    def test_finished_requests_leave_nothing(self, suite: InterceptorSuite) -> None:
        pass_gate("leak", suite)

    def test_engines_without_it_keep_every_bit(self, suite: InterceptorSuite) -> None:
        pass_gate("off", suite)

    def test_what_it_says_of_altering_is_true(self, suite: InterceptorSuite) -> None:
        pass_gate("truth", suite)

    def test_it_is_refused_where_it_must_not_act(self, suite: InterceptorSuite) -> None:
        pass_gate("refusal", suite)
