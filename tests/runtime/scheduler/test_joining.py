"""A row joins where it pays, and nobody of another key or beyond the limit does."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from fv_core.request import Priority
from fv_core.runtime.scheduler.joining import PAYS, Joining


@dataclass(slots=True, kw_only=True)
class Job:
    id: str
    key: str = "one"
    rows: int = 1
    priority: Priority = Priority.STANDARD
    arrived: float = 0.0
    cost: float = 1.0
    remaining: float = 1.0
    served: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Steps of `fixed + per_row * rows` seconds."""

    fixed: float
    per_row: float

    def step_seconds(self, key: Hashable, rows: int) -> float:
        return self.fixed + self.per_row * rows


def test_rows_join_up_to_the_limit_where_a_forward_has_a_fixed_part() -> None:
    jobs = [Job(id=str(i), rows=2) for i in range(12)]
    together = Joining(times=Line(fixed=10.0, per_row=0.1), max_rows=16)(jobs)
    assert [job.id for job in together] == [str(i) for i in range(8)]


def test_nobody_joins_where_rows_cost_what_they_cost_alone() -> None:
    assert len(Joining(times=Line(fixed=0.0, per_row=1.0))([Job(id="a"), Job(id="b")])) == 1


def test_another_key_never_joins() -> None:
    jobs = [Job(id="a"), Job(id="b", key="other"), Job(id="c")]
    assert [job.id for job in Joining(times=Line(fixed=9.0, per_row=0.1))(jobs)] == ["a", "c"]


@given(
    st.lists(st.tuples(st.sampled_from("kl"), st.integers(1, 4)), min_size=1, max_size=20),
    st.floats(0, 10), st.floats(0.01, 10), st.integers(4, 16),
)  # fmt: skip
def test_what_is_joined_is_cheaper_than_apart(
    jobs: list[tuple[str, int]], fixed: float, per_row: float, limit: int
) -> None:
    line = Line(fixed=fixed, per_row=per_row)
    ranked = [Job(id=str(i), key=key, rows=rows) for i, (key, rows) in enumerate(jobs)]
    together = Joining(times=line, max_rows=limit)(ranked)
    rows = sum(job.rows for job in together)
    assert together[0] is ranked[0]
    assert {job.key for job in together} == {ranked[0].key}
    assert rows <= limit
    if len(together) > 1:
        apart = sum(line.step_seconds(job.key, job.rows) for job in together)
        assert line.step_seconds("", rows) <= PAYS * apart + 1e-9
