"""Ctrl-C: the first cancels within one component call, the second ends the process amid whatever it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fv_core import CancelScope, Clip, Request
from fv_core.cli.interrupt import on_interrupt

Fv = Callable[..., Any]

LONG = (
    "--model",
    "wan21/micro",
    "--device",
    "cpu",
    "--steps",
    "1000",
    "--frames",
    "125",
    "--size",
    "128x128",
)
TWICE = """
import os, time
from fv_core.cli.interrupt import on_interrupt
with on_interrupt(lambda: print("first", flush=True), lambda: os._exit(130)):
    print("ready", flush=True)
    time.sleep(600)
"""


def process(*arguments: str, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=home,
        env={**os.environ, "HOME": str(home), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_interrupted_run_exits_with_130_and_leaves_no_file(tmp_path: Path) -> None:
    program = "from fv_core.cli.main import main; main()"
    arguments = ("generate", "a cat", *LONG, "--seed", "1", "-o", "out.mp4", "--sidecar", "--events")
    with process("-c", program, *arguments, home=tmp_path) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if json.loads(line).get("node") == "denoise":
                break
        running.send_signal(signal.SIGINT)
        rest, err = running.communicate(timeout=120)
    lines = [json.loads(line) for line in rest.splitlines()]
    assert running.returncode == 130
    assert lines[-1]["type"] == "error"
    assert lines[-1]["error"]["code"] == "FV510"
    assert sum(line["type"] == "request.step" for line in lines) <= 2
    assert err == ""
    assert list(tmp_path.iterdir()) == []


def test_the_second_interrupt_does_not_wait(tmp_path: Path) -> None:
    with process("-c", TWICE, home=tmp_path) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.readline() == "first\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=120) == 130


MANY = """
import os, signal, sys, time
from threading import Thread
from fv_core.cli import explain, main
def press():
    for _ in range(200):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.001)
def interrupt(code):
    Thread(target=press).start()
    time.sleep(9)
explain._entry = interrupt
main.main(["explain", "FV302"])
"""


def test_an_impatient_user_sees_no_traceback(tmp_path: Path) -> None:
    with process("-c", MANY, home=tmp_path) as running:
        _, err = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "Traceback" not in err
    assert "KeyboardInterrupt" not in err


def test_an_interrupt_while_an_error_is_told_is_an_exit_code(tmp_path: Path) -> None:
    code = """
from fv_core.cli import main
def press(*arguments):
    raise KeyboardInterrupt
main.run = press
main.main(["explain"])
"""
    with process("-c", code, home=tmp_path) as running:
        _, err = running.communicate(timeout=120)
    assert (running.returncode, err) == (130, "")


def test_interrupts_are_told_in_order_and_then_left_as_they_were() -> None:
    told: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with on_interrupt(lambda: told.append("first"), lambda: told.append("second")):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
    assert told == ["first", "second", "second"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_without_an_interrupt_tells_nothing() -> None:
    told: list[str] = []
    with on_interrupt(lambda: told.append("first"), lambda: told.append("second")):
        pass
    assert told == []


def test_an_interrupt_in_the_last_call_writes_nothing(
    fv: Fv, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fv_core.runtime.engine import Engine

    run = Engine.run

    def interrupted_at_the_end(self: Engine, request: Request, *, cancel: CancelScope, **rest: Any) -> Clip:
        clip = run(self, request, cancel=cancel, **rest)
        cancel.cancel()
        return clip

    monkeypatch.setattr(Engine, "run", interrupted_at_the_end)
    told = fv("generate", "a cat", "--seed", "1", "--device", "cpu", "-o", "out.npy")
    assert told.code == 130
    assert list(work.iterdir()) == []
