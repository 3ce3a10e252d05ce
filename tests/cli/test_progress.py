"""Progress is drawn on a terminal and only there."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from fv_core.cli.main import run

SHORT = (
    "generate",
    "a cat",
    "--device",
    "cpu",
    "--steps",
    "3",
    "--frames",
    "5",
    "--size",
    "32x32",
    "-o",
    "out.npy",
)
OnTerminal = Callable[..., tuple[str, str]]


@pytest.fixture
def on_terminal(
    fv: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> OnTerminal:
    """Runs `fv` with a pipe as stdout and a terminal as stderr: what it writes to each."""

    def command(*arguments: str) -> tuple[str, str]:
        master, terminal = pty.openpty()
        pieces: list[bytes] = []
        reader = Thread(target=read_all, args=(master, pieces))
        reader.start()
        with open(terminal, "w") as stderr, monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", stderr)
            patched.setenv("TERM", "xterm-256color")
            patched.setenv("COLUMNS", "100")
            assert run(arguments) == 0
        reader.join()
        os.close(master)
        return capsys.readouterr().out, b"".join(pieces).decode()

    return command


def read_all(master: int, pieces: list[bytes]) -> None:
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # how a terminal tells that its other end is closed
            return
        if not piece:
            return
        pieces.append(piece)


def test_a_terminal_shows_nodes_steps_pace_and_time_left(on_terminal: OnTerminal) -> None:
    out, drawn = on_terminal(*SHORT)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn)
    assert re.search(r"wan21/micro +\S+ \d+/\d+ 0:00:", text)
    assert re.search(r"  denoise +\S+ 3/3 +\d+\.\d\d s/step\s", text)
    assert re.search(r"  decode +\S+ \d/\d +\d+\.\d\d s/step", text)
    assert "encode negative prompt" in text
    assert "wan21/micro: starting" in text
    assert all(f"wan21/micro: loading {name} " in text for name in ("text", "transformer", "vae"))
    assert (out, "out.npy" in text) == ("out.npy\n", False)
    assert text.endswith("for --model wan21/t2v-1.3b\r\n")
    assert "\x1b[?25h" in drawn  # the cursor is back


def test_the_time_left_of_the_run_is_shown_once_its_steps_were_measured(
    on_terminal: OnTerminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FV_HOME", str(tmp_path / "fv"))
    left = r"wan21/micro +\S+ \d+/\d+ 0:00:\d\d, 0:00:\d\d left"
    first, second = (
        re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", on_terminal(*SHORT, "--force")[1]) for _ in range(2)
    )
    assert not re.search(left, first.split("  decode")[0])
    assert re.search(left, second.split("  decode")[0])


def test_several_clips_are_counted(on_terminal: OnTerminal) -> None:
    _, drawn = on_terminal(*SHORT, "--n", "2")
    assert "wan21/micro 1/2" in drawn
    assert "wan21/micro 2/2" in drawn


def test_quiet_draws_nothing(on_terminal: OnTerminal) -> None:
    assert on_terminal("--quiet", *SHORT) == ("out.npy\n", "")


def colors(drawn: str) -> list[str]:
    return re.findall(r"\x1b\[(?:[0-9;]*;)?(?:3[0-9]|9[0-7])[0-9;]*m", drawn)


def test_color_is_drawn_unless_it_is_unwanted(
    on_terminal: OnTerminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert colors(on_terminal(*SHORT, "--force")[1])
    _, plain = on_terminal("--color", "never", *SHORT, "--force")
    assert "denoise" in plain
    assert colors(plain) == []
    monkeypatch.setenv("NO_COLOR", "1")
    assert colors(on_terminal(*SHORT, "--force")[1]) == []


@pytest.mark.parametrize("flag", ["--json", "--events"])
def test_documents_stay_on_stdout(on_terminal: OnTerminal, flag: str) -> None:
    out, drawn = on_terminal(*SHORT, flag)
    documents = [json.loads(line) for line in out.splitlines()]
    assert documents[-1]["clips"][0]["path"] == "out.npy"
    assert "denoise" in drawn
    assert '"path"' not in drawn


def test_notes_stand_on_lines_of_their_own(on_terminal: OnTerminal) -> None:
    _, drawn = on_terminal(*SHORT)
    assert re.search(
        r"(\n|\r|\x1b\[2K)(\x1b\[[0-9;]*m)*note:(\x1b\[[0-9;]*m)* seed \d+ was drawn; --seed repeats it\r?\n",
        drawn,
    )


@pytest.mark.usefixtures("few_gates")
def test_gates_tell_on_a_terminal_how_far_they_are(on_terminal: OnTerminal) -> None:
    out, drawn = on_terminal("parity", "gate", "wan21/micro", "--device", "cpu")
    assert "gates done" in drawn
    assert "gates done" not in out
