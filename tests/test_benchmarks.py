"""Every benchmark runs in its smoke form and ends with its JSON line; how a missed goal ends the process."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "benchmarks"
KEYS = {"name", "smoke", "met", "figures", "goals", "reached"}
QUALITY = {
    f"{split}_{name}"
    for split in ("seen", "held-out")
    for name in ("shape", "colour", "direction", "background", "all")
}
FIGURES = {
    "batching": {"fast_at_8", "exact_at_8", "exact_over_fast", "two_workers_at_8", "large_fast_at_8"},
    "overhead": {"together_us", "together_sampler_us", "alone_us", "alone_sampler_us"},
    "scheduling": {
        "A_mean_over_fifo",
        "A_short_p95_over_fifo",
        "A_long_p95_over_fifo",
        "C_mean_over_fifo",
        "C_short_p95_over_fifo",
        "C_long_p95_over_fifo",
        "work_inflation",
    },
    "prediction": {
        *(f"shape_{number}_{what}" for number in (1, 2, 3) for what in ("error", "left_error")),
        "together_eta_error",
    },
    "scheduling_engine": {
        "A_mean_over_fifo",
        "A_short_p95_over_fifo",
        "A_long_p95_over_fifo",
        "A_work_over_fifo",
        "A_work",
    },
    "first_clip": {"imports_s", "first_clip_s", "first_over_imports", "second_clip_s"},
    "tiny_quality": QUALITY | {"codec_db", "codec_all"},
    "startup": {"help_ms", "models_ms", "refusal_ms", "import_ms", "import_wan_pipeline_ms"},
    "step_overhead": {"bare_step_ms", "engine_over_bare", "pipeline_over_fv"},
    "training": {"bare_clips_per_s", "fv_over_bare", "data_wait_share"},
}


def run(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *options],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )


def test_every_benchmark_is_tried_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == FIGURES.keys() | {"device", "report", "simulation"}


@pytest.mark.parametrize("name", FIGURES)
def test_smoke_run_ends_with_its_line_whatever_the_figures(name: str) -> None:
    done = run(name, "--smoke")
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout.splitlines()[-1])
    assert line.keys() == KEYS
    assert (line["name"], line["smoke"]) == (name, True)
    assert line["figures"].keys() == FIGURES[name]
    assert (
        all(value > 0 for value in line["figures"].values()) or name == "tiny_quality"
    )  # rates of three clips
    assert line["goals"].keys() == line["reached"].keys() <= FIGURES[name]
    assert line["met"] is all(line["reached"].values())


def test_the_device_benchmark_refuses_without_a_device() -> None:
    done = run("device", "--smoke")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "device: torch finds no CUDA device here, so nothing was measured\n"


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `report` that benchmarks share."""
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("report")


def told(report: Any, *, value: float, smoke: bool = False, report_only: bool = False) -> None:
    goals = [
        report.Goal(figure="a", at_most=True, limit=1.0),
        report.Goal(figure="b", at_most=False, limit=1.0),
    ]
    args = Namespace(smoke=smoke, report_only=report_only)
    report.report("toy", [("what", "fv"), ("row", "1")], {"a": value, "b": 1.0}, goals, args)


def line(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_goals_that_are_met_end_well(report: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told(report, value=1.0)
    assert line(capsys) == {
        "name": "toy",
        "smoke": False,
        "met": True,
        "figures": {"a": 1.0, "b": 1.0},
        "goals": {"a": "<= 1", "b": ">= 1"},
        "reached": {"a": True, "b": True},
    }


def test_a_missed_goal_ends_with_1_after_the_line_and_says_which(
    report: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        told(report, value=1.25)
    assert ended.value.code == "a is 1.25, the goal is <= 1"  # text is exit code 1
    document = line(capsys)
    assert (document["met"], document["reached"]) == (False, {"a": False, "b": True})


@pytest.mark.parametrize("option", ["smoke", "report_only"])
def test_a_missed_goal_is_only_told_where_asked(
    option: str, report: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    told(report, value=1.25, **{option: True})
    assert line(capsys)["met"] is False


@pytest.mark.parametrize(
    ("options", "rounds"), [([], 7), (["--smoke"], 1), (["--smoke", "--rounds", "3"], 3)]
)
def test_rounds_are_few_in_a_smoke_run(
    options: list[str], rounds: int, report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["toy", *options])
    assert report.settled(report.arguments("", rounds=7)).rounds == rounds


def test_no_rounds_are_refused(report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["toy", "--rounds", "0"])
    with pytest.raises(SystemExit) as ended:
        report.settled(report.arguments("", rounds=7))
    assert ended.value.code == 2


def test_contenders_take_turns_and_the_first_goes_last_next(report: Any) -> None:
    order: list[str] = []
    seconds = report.alternate({name: (lambda name=name: order.append(name)) for name in "ab"}, 3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert {name: len(times) for name, times in seconds.items()} == {"a": 3, "b": 3}
    assert report.ratio([2.0, 9.0, 4.0], [1.0, 3.0, 4.0]) == 2.0


def test_machine_is_told(report: Any) -> None:
    assert f"torch {torch.__version__}" in report.machine()
