"""What every test run shares: `--soak`, and an honest list of what was not run.

A test marked `needs("ffprobe")` runs only where that program is on the path. The run ends with what it left out and
how to enable it; with RUN_EVERY_TEST=1 in the environment, anything left out fails the run. Both hold where several
workers share the tests (`--numprocesses`).
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import shutil
import tempfile
from datetime import UTC, datetime
from typing import Any

import pytest

pytest_plugins = ["fv_core.testing"]

ENABLE = {"ffmpeg": "apt-get install ffmpeg", "ffprobe": "apt-get install ffmpeg"}
LIBRARIES = ("torch", "diffusers", "transformers")
LEFT_OUT = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the gates at full counts")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*programs): runs only where these programs are on the path")
    config.stash[LEFT_OUT] = []
    if "FV_HOME" not in os.environ:  # engines keep what they measured there, which no test may find
        folder = tempfile.TemporaryDirectory(prefix="fv-home-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ["FV_HOME"] = folder.name


@pytest.fixture(scope="session")
def soak(pytestconfig: pytest.Config) -> bool:
    """Whether gates run at full counts."""
    return bool(pytestconfig.getoption("soak"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    absent = {item: programs for item in items if (programs := _absent_programs(item))}
    for item, programs in absent.items():
        how = " && ".join(sorted({ENABLE[program] for program in programs}))
        config.stash[LEFT_OUT].append(f"{item.nodeid} needs {', '.join(programs)}; to enable it: {how}")
    config.hook.pytest_deselected(items=list(absent))
    items[:] = [item for item in items if item not in absent]


def _absent_programs(item: pytest.Item) -> list[str]:
    programs = [program for marker in item.iter_markers("needs") for program in marker.args]
    if unknown := set(programs) - set(ENABLE):
        raise pytest.UsageError(
            f"{item.nodeid}: conftest.ENABLE does not say how to install {sorted(unknown)}"
        )
    return [program for program in programs if shutil.which(program) is None]


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """A soak run leaves its record: what ran at full counts, where, and every figure that a test recorded."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not config.getoption("soak") or reporter is None:
        return
    passed, failed = (reporter.stats.get(outcome, []) for outcome in ("passed", "failed"))
    figures = {
        f"{report.nodeid}: {name}": value for report in passed for name, value in report.user_properties
    }
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores {platform.machine()}, {platform.system()}",
        "python": platform.python_version(),
        "versions": {name: importlib.import_module(name).__version__ for name in LIBRARIES},
        "passed": len(passed),
        "failed": [report.nodeid for report in failed],
        "figures": figures,
    }
    folder = config.rootpath / "docs" / "soak"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if (told := getattr(session.config, "workeroutput", None)) is not None:
        told["left_out"] = session.config.stash[LEFT_OUT]
    elif _not_run(session.config) and os.environ.get("RUN_EVERY_TEST") == "1" and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Every worker leaves out the same; the process that tells of it has collected nothing itself."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get(
        "left_out", node.config.stash[LEFT_OUT]
    )


def _not_run(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    return config.stash[LEFT_OUT] + [f"{report.nodeid} skipped itself" for report in skipped]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not_run := _not_run(config):
        terminalreporter.section("not run", red=os.environ.get("RUN_EVERY_TEST") == "1")
        for line in not_run:
            terminalreporter.write_line(line)
