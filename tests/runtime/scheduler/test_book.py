"""What was learned outlives the process, whole or not at all, and a damaged file is told and harms nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fv_core import Engine, Request
from fv_core.request import Environment, Numerics, Size
from fv_core.runtime.scheduler import book
from fv_core.runtime.scheduler.book import CostBook, Entry, Shape
from fv_core.runtime.scheduler.cost import Learned, Mean

Ask = Callable[..., Request]
ENV = Environment(
    device="cpu", device_name="x", instructions="AVX2", threads=1, platform="Linux", versions={"torch": "2"}
)


def entry(node: str = "denoise", seconds: float = 1.5, **shape: Any) -> Entry:
    fields = {
        "node": node, "size": Size(64, 64), "frames": 17, "guided": True, "numerics": Numerics.EXACT,
        "dtype": "float32", "offload": "none", "adapters": "",
    }  # fmt: skip
    mean = Mean(rows=1, seconds=seconds, count=3)
    return Entry(shape=Shape(**{**fields, **shape}), work=1e9, learned=Learned(means=(mean,), share=0.75))


def test_what_is_written_is_read_again_by_card_and_environment(tmp_path: Path) -> None:
    costs = CostBook(tmp_path / "costs")
    assert costs.read("c" * 64, ENV) == ((), None)
    costs.write("m", "c" * 64, ENV, (entry(), entry("decode")))
    assert costs.read("c" * 64, ENV) == ((entry(), entry("decode")), None)
    assert costs.read("d" * 64, ENV) == ((), None)
    assert costs.read("c" * 64, replace(ENV, threads=2)) == ((), None)


def test_shapes_of_other_processes_stay_and_the_oldest_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = CostBook(tmp_path)
    costs.write("m", "c" * 64, ENV, (entry("a"), entry("b", seconds=1.0)))
    costs.write("m", "c" * 64, ENV, (entry("b", seconds=2.0), entry("c")))
    assert costs.read("c" * 64, ENV)[0] == (entry("a"), entry("b", seconds=2.0), entry("c"))
    monkeypatch.setattr(book, "KEPT", 2)
    costs.write("m", "c" * 64, ENV, (entry("d"),))
    assert costs.read("c" * 64, ENV)[0] == (entry("c"), entry("d"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda page: "{",
        lambda page: json.dumps([page]),
        lambda page: json.dumps({**page, "format": 2}),
        lambda page: json.dumps({**page, "entries": [{**page["entries"][0], "work": "much"}]}),
        lambda page: json.dumps(page).replace("1.5", "-1.5"),
        lambda page: json.dumps(page).replace("0.75", "1.75"),
        lambda page: json.dumps(page).replace('"count": 3', '"count": 0'),
        lambda page: json.dumps(page).replace('"count": 3', f'"count": {10**400}'),
        lambda page: json.dumps(page).replace('"rows": 1', f'"rows": {10**400}'),
        lambda page: json.dumps(page).replace("1.5", str(10**400)),
        lambda page: json.dumps({**page, "entries": [{**page["entries"][0], "work": 10**400}]}),
        lambda page: "[" * 100_000,
    ],
)
def test_a_file_that_says_nothing_sensible_is_told_and_replaced(
    damage: Callable[[Any], str], tmp_path: Path
) -> None:
    costs = CostBook(tmp_path)
    costs.write("m", "c" * 64, ENV, (entry(),))
    (path,) = tmp_path.glob("*.json")
    path.write_text(damage(json.loads(path.read_text())))
    entries, told = costs.read("c" * 64, ENV)
    assert entries == ()
    assert told is not None and str(path) in told and "learned anew" in told
    costs.write("m", "c" * 64, ENV, (entry("b"),))
    assert costs.read("c" * 64, ENV) == ((entry("b"),), None)


@pytest.fixture
def costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what engines of this test measure."""
    monkeypatch.setenv("FV_HOME", str(tmp_path))
    return tmp_path / "costs"


def test_a_new_engine_knows_what_the_last_one_measured(ask: Ask, costs: Path) -> None:
    with Engine(["wan21/micro"], device="cpu") as engine:
        assert engine.plan(ask()).seconds is None
        engine.run(ask())
        known = engine.plan(ask()).seconds
        assert known is not None and known > 0
        assert engine.plan(ask(frames=9)).seconds is None
    with Engine(["wan21/micro"], device="cpu") as engine:
        assert engine.plan(ask()).seconds == pytest.approx(known)
        assert engine.plan(ask(steps=4)).seconds > known  # type: ignore[operator]


def test_an_engine_tells_of_a_damaged_file_once_and_goes_on(ask: Ask, costs: Path) -> None:
    with Engine(["wan21/micro"], device="cpu") as engine:
        engine.run(ask())
    (path,) = costs.glob("*.json")
    path.write_text("damaged")
    with Engine(["wan21/micro"], device="cpu") as engine:
        first, second = engine.run(ask()), engine.run(ask())
    assert [str(path) in note for note in first.used.adjusted] == [True]
    assert second.used.adjusted == ()
    assert CostBook(costs).read(first.used.card_digest, first.used.environment)[1] is None


def test_a_folder_that_cannot_be_written_is_told_and_harms_no_clip(ask: Ask, costs: Path) -> None:
    costs.write_text("a file where the folder should be")
    with Engine(["wan21/micro"], device="cpu") as engine:
        told = engine.run(ask()).used.adjusted
    assert any("cannot be read" in note for note in told)
    assert any("could not be kept for the next run" in note for note in told)
