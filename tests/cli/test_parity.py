"""`fv parity` measures, records, gates and certifies; its exit code says whether a check found a problem."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fv_core.loop import flow_denoise
from fv_core.loop.policies.guidance import combine

Fv = Callable[..., Any]
TINY = "wan21/micro"
SMALL = ("a ball", "--size", "16x16", "--frames", "1", "--steps", "1", "--seed", "1")
KIT = Path(__file__).parents[1] / "testing"

PLUGIN = """
from fv_core.hookspecs import hookimpl
import kit
fv_api = 1
@hookimpl
def fv_cards():
    return [kit.GOOD, kit.BROKEN["WrongOrder"]]
"""


@pytest.fixture(autouse=True)
def _alone(fv: Fv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread, and an empty ledger; the shipped one is out of sight."""
    torch.set_num_threads(1)
    monkeypatch.setenv("FV_HOME", str(tmp_path / "fv"))
    monkeypatch.setattr("fv_core.runtime.records.ledger._shipped", lambda card: iter(()))


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guidance with its branches mixed up."""
    monkeypatch.setattr(flow_denoise, "combine", lambda cond, uncond, scale: combine(uncond, cond, scale))


@pytest.fixture
def kit(fake_dist: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed plugin with a sound and a broken card."""
    monkeypatch.syspath_prepend(KIT)
    fake_dist("kit", PLUGIN)


def test_check_tells_every_figure_and_that_nothing_is_certified(fv: Fv) -> None:
    told = fv("parity", "check", TINY)
    header, *rows = told.out.splitlines()
    assert (told.code, told.err) == (0, "")
    assert header.split() == ["RUNG", "TAPS", "COMPARED", "LARGEST", "DIFFERENCE", "VERDICT"]
    assert ["C1", "denoise/latent", "12", "0", "passed"] in [row.split() for row in rows]
    assert rows[-2:] == [
        f"{rung} is not certified here: there is no certificate of it" for rung in ("C0", "C1")
    ]


def test_check_tells_the_first_divergence_and_exits_1(fv: Fv, wrong: None) -> None:
    told = fv("parity", "check", TINY, "--rung", "C1")
    assert told.code == 1
    assert "C1    denoise/latent" in told.out
    assert "C1 parts first at denoise/0/latent[0, 0, 0, 0] at step 0: values: " in told.out
    assert "C0" not in told.out.partition("C0 is not certified")[0]


def test_check_is_a_document(fv: Fv, wrong: None) -> None:
    told = fv("parity", "check", TINY, "--json")
    document = told.json
    assert (told.code, told.err, document["ok"]) == (1, "", False)
    component, trajectory = document["rungs"]
    assert (component["rung"], component["verdict"], component["first"]) == ("C0", "passed", None)
    assert trajectory["first"]["tap"] == "denoise/0/latent"
    assert trajectory["first"]["element"] == [0, 0, 0, 0]
    assert document["certified"][0] == {
        "rung": "C0", "certified": False, "path": None, "reasons": ["there is no certificate of it"],
    }  # fmt: skip


def test_check_with_events_tells_steps_and_the_result_last(fv: Fv) -> None:
    told = fv("parity", "check", TINY, "--rung", "C1", "--events")
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert told.code == 0
    assert {line["schema"] for line in lines} == {1}
    assert {line["type"] for line in lines[:-1]} >= {"request.started", "request.step", "request.finished"}
    assert (lines[-1]["type"], lines[-1]["ok"]) == ("result", True)


def test_a_recording_is_compared_with_a_later_run(
    fv: Fv, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = fv("parity", "check", TINY, "--record", "run.safetensors")
    assert (recorded.code, recorded.out) == (0, "run.safetensors\n")
    assert fv("parity", "check", TINY, "--against", "run.safetensors").code == 0
    monkeypatch.setattr(flow_denoise, "combine", lambda cond, uncond, scale: combine(cond, uncond, scale + 1))
    told = fv("parity", "check", TINY, "--against", "run.safetensors", "--json")
    assert told.code == 1
    assert [one["verdict"] for one in told.json["rungs"]] == ["passed", "failed"]


def test_a_recording_replaces_nothing_and_has_one_model(fv: Fv, work: Path) -> None:
    (work / "taken").write_text("mine")
    assert fv("parity", "check", TINY, "--record", "taken").err.startswith("error[FV315]")
    assert (work / "taken").read_text() == "mine"
    absent = fv("parity", "check", TINY, "--against", "absent")
    assert (absent.code, absent.err[:13]) == (2, "error[FV605]:")
    fv("parity", "check", TINY, "--record", "run")
    (work / "run").write_bytes((work / "run").read_bytes().replace(b"wan21/micro", b"wan21/micrx"))
    other = fv("parity", "check", TINY, "--against", "run")
    assert "it is a run of wan21/micrx, not of wan21/micro" in other.err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ("check", TINY, "--rung", "C3"),
            2,
            "error[FV602]: parity rung 'C3': is known by name only (legal: C0, C1)",
        ),
        (("check", TINY, "--rung", "X"), 2, "error[FV602]: parity rung 'X': is no rung of the ladder"),
        (("check", "wan21/t2v-1.3b"), 3, "error[FV251]: weights of wan21/t2v-1.3b"),
        (("check", "wan21/absent"), 2, "error[FV101]: model 'wan21/absent': is not installed"),
        (("check", TINY, "--device", "abacus"), 2, "error[FV312]: device 'abacus'"),
        (("check", TINY, "--dtype", "int4"), 2, "error[FV313]: "),
        (
            ("check", TINY, "--record", "a", "--against", "b"),
            2,
            "error[FV300]: command line: --record compares",
        ),
        (("check", TINY, "--json", "--events"), 2, "--events ends with what --json prints"),
        (("certify", "wan21/t2v-14b"), 3, "error[FV251]: weights of wan21/t2v-14b"),
        (("gate",), 2, "Missing argument 'ID...'"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: tuple[str, ...], code: int, sentence: str, fv: Fv) -> None:
    told = fv("parity", *arguments)
    assert told.code == code
    assert sentence in told.out + told.err


def test_certified_is_told_everywhere_and_lets_certified_runs_go(fv: Fv, tmp_path: Path) -> None:
    assert "not certified: there is no certificate of it" in fv("models", "show", TINY).out
    refused = fv("generate", *SMALL, "--require-certified", "-o", "a.png")
    assert (refused.code, refused.err[:13]) == (3, "error[FV601]:")
    told = fv("parity", "certify", TINY)
    assert told.code == 0
    files = [Path(line) for line in told.out.splitlines()]
    assert [file.parent for file in files] == [tmp_path / "fv" / "certificates"] * 2
    assert "note: C1 passed: 2 requests in float32 against diffusers.WanPipeline 0.42.1" in told.err
    assert f"certified for cpu {platform.machine()}, threads 1 ({files[0]})" in fv("models", "show", TINY).out
    assert f"C1 is certified here by {files[1]}" in fv("parity", "check", TINY, "--rung", "C1").out
    assert fv("generate", *SMALL, "--require-certified", "-o", "a.png").code == 0
    files[1].write_text(files[1].read_text().replace('"max_abs_diff": 0.0', '"max_abs_diff": 0.125', 1))
    edited = fv("generate", *SMALL, "--require-certified", "-o", "b.png")
    assert "figures was edited after sealing" in edited.err
    assert (
        f"not certified: {files[1].name}: figures was edited after sealing" in fv("models", "show", TINY).out
    )


def test_certify_writes_into_a_ledger_and_tells_a_failed_rung(fv: Fv, work: Path, wrong: None) -> None:
    told = fv("parity", "certify", TINY, "--into", "ledger", "--json")
    assert told.code == 1
    assert [(one["rung"], one["verdict"]) for one in told.json["certificates"]] == [
        ("C0", "passed"),
        ("C1", "failed"),
    ]
    assert sorted(str(file.relative_to(work)) for file in (work / "ledger").iterdir()) == [
        one["path"] for one in told.json["certificates"]
    ]


def test_certified_runs_need_weights_that_a_dry_run_does_not_load(fv: Fv) -> None:
    told = fv("generate", *SMALL, "--require-certified", "--dry-run")
    assert told.code == 2
    assert "--dry-run loads no weights, which --require-certified compares" in told.err


def test_gates_tell_a_figure_each(fv: Fv, kit: None) -> None:
    told = fv("parity", "gate", "kit/good")
    header, *rows = told.out.splitlines()
    assert (told.code, told.err) == (0, "")
    assert header.split()[:5] == ["MODEL", "GATE", "STATE", "FIGURE", "OF"]
    found = {row.split()[1]: row.split()[2:4] for row in rows}
    assert found.keys() >= {"interleave", "resume", "cancel", "leak", "determinism"}
    assert set(map(tuple, found.values())) == {("passed", "0")}


@pytest.mark.usefixtures("few_gates")
def test_a_gate_that_fails_is_told_and_exits_1(fv: Fv, kit: None) -> None:
    told = fv("parity", "gate", "kit/wrong-order", "kit/good", "--events")
    *events, result = [json.loads(line) for line in told.out.splitlines()]
    assert told.code == 1
    assert [(one["model"], one["gate"]) for one in events if one["state"] != "passed"] == [
        ("kit/wrong-order", "emission")
    ]
    assert (result["type"], result["ok"]) == ("result", False)
    assert [model["model"] for model in result["models"]] == ["kit/wrong-order", "kit/good"]
    (failed,) = [gate for gate in result["models"][0]["gates"] if gate["state"] == "failed"]
    assert (failed["figure"], failed["of"]) == (4, 5)
    assert failed["detail"] == "request 1: chunk 0 came with index 2"
