"""How every benchmark measures and reports: alternation in one run, medians, a table, one JSON line at the end."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Contender: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A figure's goal: at most `limit`, or at least `limit`."""

    figure: str
    at_most: bool
    limit: float

    def met(self, figures: Mapping[str, float]) -> bool:
        value = figures[self.figure]
        return value <= self.limit if self.at_most else value >= self.limit


def alternate(contenders: Mapping[str, Contender], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender, `rounds` times in alternation, so that drift of the machine meets all alike.

    The order turns around every round: whoever runs second would otherwise always find warm caches.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for index in range(rounds):
        order = list(contenders)
        for name in order if index % 2 == 0 else reversed(order):
            began = time.perf_counter()
            contenders[name]()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median of the rounds' own ratios: each pair was measured back to back."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def report(
    name: str, rows: Sequence[Sequence[str]], figures: Mapping[str, float], goals: Sequence[Goal]
) -> None:
    """Prints the table, then one JSON line."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    print(f"\n{name}  ({machine()})\n")
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    told = {goal.figure: f"{'<=' if goal.at_most else '>='} {goal.limit:g}" for goal in goals}
    met = {goal.figure: goal.met(figures) for goal in goals}
    print()
    print(json.dumps({"name": name, "figures": dict(figures), "goals": told, "met": met}))


def machine() -> str:
    """The machine in words: cores, architecture, Python and torch."""
    import torch  # only the startup benchmark reports without having loaded it for its own work

    return (
        f"{os.cpu_count()} cores {platform.machine()} {torch.backends.cpu.get_cpu_capability()}, "
        f"{torch.get_num_threads()} threads, Python {platform.python_version()}, torch {torch.__version__}"
    )
