"""How every benchmark measures and reports: alternation in one run, medians, a table, one JSON line at the end.

A missed goal ends the process with exit code 1, so that a script notices; `--report-only` is for looking at figures.
"""

from __future__ import annotations

import argparse
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

    @property
    def words(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.limit:g}"


def arguments(
    about: str | None, *, rounds: int, smoke_rounds: int = 1, full_rounds: int | None = None
) -> argparse.ArgumentParser:
    """The options of every benchmark; `settled` reads them.

    Args:
        about: the benchmark's own docstring. rounds: repeated measurements. smoke_rounds: those of a smoke run.
        full_rounds: those of `--full`, where a benchmark has it.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rounds", type=int, help=f"repeated measurements; {rounds} if left out")
    if full_rounds is not None:
        parser.add_argument("--full", action="store_true", help=f"{full_rounds} rounds, as published")
    parser.add_argument("--report-only", action="store_true", help="exit with 0 where a goal is missed")
    parser.add_argument(
        "--smoke", action="store_true", help="tiny counts: the figures mean nothing and miss no goal"
    )
    parser.set_defaults(usual=rounds, tiny=smoke_rounds, most=full_rounds, full=False)
    return parser


def settled(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line, with `rounds` filled in."""
    args = parser.parse_args()
    if args.rounds is None:
        args.rounds = args.tiny if args.smoke else args.most if args.full else args.usual
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds} is below 1")
    return args


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
    name: str,
    rows: Sequence[Sequence[str]],
    figures: Mapping[str, float],
    goals: Sequence[Goal],
    args: argparse.Namespace,
) -> None:
    """Prints the table, then one JSON line: `reached` says of each goal whether it is, `met` of all of them.

    Raises:
        SystemExit: 1, a goal is missed and the run is neither a smoke run nor for the figures only.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    print(f"\n{name}  ({machine()})\n")
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()
    told = {goal.figure: goal.words for goal in goals}
    reached = {goal.figure: goal.met(figures) for goal in goals}
    met = all(reached.values())
    print(
        json.dumps(
            {
                "name": name,
                "smoke": args.smoke,
                "met": met,
                "figures": dict(figures),
                "goals": told,
                "reached": reached,
            }
        )
    )
    if not (met or args.smoke or args.report_only):
        missed = [
            f"{goal.figure} is {figures[goal.figure]:.4g}, the goal is {goal.words}"
            for goal in goals
            if not reached[goal.figure]
        ]
        raise SystemExit("\n".join(missed))


def machine() -> str:
    """The machine in words: cores, architecture, Python and torch."""
    import torch  # only the startup benchmark reports without having loaded it for its own work

    return (
        f"{os.cpu_count()} cores {platform.machine()} {torch.backends.cpu.get_cpu_capability()}, "
        f"{torch.get_num_threads()} threads, Python {platform.python_version()}, torch {torch.__version__}"
    )
