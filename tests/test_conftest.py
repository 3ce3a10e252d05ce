"""A run tells what it left out and how to enable it, and fails for it where everything has to run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

def test_ordinary(): pass

@pytest.mark.needs("ffprobe")
def test_probe(): pass

def test_soak(soak): print("soak is", soak)
"""


WORKERS = ("--numprocesses", "2", "--dist", "loadfile")


def run(folder: Path, *options: str, source: str = TESTS, everything: bool = False) -> tuple[int, str]:
    """Exit status and output of pytest on `source`, with nothing but `folder` on the path."""
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    (folder / "test_it.py").write_text(source)
    environment = {**os.environ, "PATH": str(folder), "RUN_EVERY_TEST": "1" if everything else "0"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", "-rP", *options]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("options", [(), WORKERS], ids=["alone", "workers"])
@pytest.mark.parametrize("everything", [False, True])
def test_an_absent_program_is_told_and_fails_only_a_run_of_everything(
    everything: bool, options: tuple[str, ...], tmp_path: Path
) -> None:
    status, output = run(tmp_path, *options, everything=everything)
    assert status == (1 if everything else 0)
    assert output.count("test_it.py::test_probe needs ffprobe; to enable it: apt-get install ffmpeg") == 1
    assert "2 passed" in output


def test_a_present_program_lets_its_test_run(tmp_path: Path) -> None:
    (tmp_path / "ffprobe").touch(mode=0o755)
    status, output = run(tmp_path, everything=True)
    assert status == 0
    assert "3 passed" in output
    assert "not run" not in output


@pytest.mark.parametrize("options", [(), WORKERS], ids=["alone", "workers"])
def test_a_skip_fails_a_run_of_everything(options: tuple[str, ...], tmp_path: Path) -> None:
    source = "import pytest\ndef test_it(): pytest.skip('tired')\n"
    status, output = run(tmp_path, *options, source=source, everything=True)
    assert status == 1
    assert "test_it.py::test_it skipped itself" in output


def test_a_program_that_nobody_can_install_is_refused(tmp_path: Path) -> None:
    status, output = run(tmp_path, source=TESTS.replace("ffprobe", "unheard-of"))
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "does not say how to install ['unheard-of']" in output


@pytest.mark.parametrize("options", [(), ("--soak",)])
def test_soak_reaches_the_tests(options: tuple[str, ...], tmp_path: Path) -> None:
    assert f"soak is {bool(options)}" in run(tmp_path, *options)[1]
    assert (tmp_path / "docs" / "soak" / "record.json").exists() == bool(options)
