"""The frame of `fv`: its tree, its lazy table, and what every kind of failure becomes."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from fv_core import __version__
from fv_core.cli.main import VERBS
from fv_core.cli.main import fv as root

Fv = Callable[..., Any]

TREE = {
    "fv": "--version --plugins --quiet -q --color",
    "fv generate": (
        "PROMPT --model --size --frames --fps --steps --guidance --negative --seed --n --device --dtype "
        "--weights --numerics --max-batch --offload --memory --require-certified --set --lora --task --image --video "
        "--audio --action --from --sidecar --dry-run --force --output -o --scale --json --events"
    ),
    "fv models": "--json",
    "fv models show": "ID --schema --json",
    "fv plugins": "--check --requirements --json",
    "fv plugins show": "NAME --json",
    "fv plugins new": "NAME PATH --kind --json",
    "fv plugins check": "PATH --quick --json",
    "fv validate": "ID... --all --recipe --resolve --json",
    "fv weights": "",
    "fv weights pull": "ID --yes -y --check --json",
    "fv weights list": "--json",
    "fv weights verify": "ID --weights --json",
    "fv weights where": "ID --json",
    "fv weights convert": "FILE OUT --model --others --json",
    "fv parity": "",
    "fv parity check": "ID --rung --record --against --device --dtype --weights --json --events",
    "fv parity gate": "ID... --device --dtype --weights --json --events",
    "fv parity certify": "ID --into --device --dtype --weights --json --events",
    "fv train": "CONFIG KEY=VALUE... --resume --dry-run --cache-only --init --list --json --events",
    "fv export": "RUN --format --dtype --output -o --json",
    "fv config": "OPTION... --json",
    "fv env": "--json",
    "fv explain": "CODE --json",
}


def commands(command: click.Command, path: str) -> dict[str, str]:
    """Every command under `path` with its arguments and options in order."""
    words = [
        word
        for param in command.params
        for word in (
            param.opts if isinstance(param, click.Option) else [param.make_metavar(context(command))]
        )
    ]
    found = {path: " ".join(word.strip("[]") for word in words)}
    if isinstance(command, click.Group):
        for name in command.list_commands(context(command)):
            inner = command.get_command(context(command), name)
            assert inner is not None
            found |= commands(inner, f"{path} {name}")
    return found


def context(command: click.Command) -> click.Context:
    return click.Context(command)


def test_the_tree_is_as_published() -> None:
    found = commands(root, "fv")
    assert {path: sorted(words.split()) for path, words in found.items()} == {
        path: sorted(words.split()) for path, words in TREE.items()
    }


@pytest.mark.parametrize("verb", VERBS)
def test_the_table_tells_what_the_module_has(verb: str) -> None:
    command = getattr(importlib.import_module(VERBS[verb].module), verb)
    assert isinstance(command, click.Command)
    assert command.get_short_help_str(limit=200) == VERBS[verb].help


def test_every_verb_module_is_in_the_table() -> None:
    folder = Path(importlib.import_module("fv_core.cli").__path__[0])
    modules = {path.stem for path in folder.glob("*.py")}
    verbs = {
        name
        for name in modules
        if isinstance(getattr(importlib.import_module(f"fv_core.cli.{name}"), name, None), click.Command)
    }
    assert verbs == set(VERBS)


def test_help_tells_verbs_and_exit_codes(fv: Fv) -> None:
    told = fv("--help")
    assert told.code == 0
    assert told.err == ""
    unwrapped = " ".join(told.out.split())
    assert all(f" {verb} {text.help}" in unwrapped for verb, text in VERBS.items())
    for code in ("0    ok", "1    ", "2    usage", "3    ", "4    ", "130  cancelled"):
        assert f"\n    {code}" in told.out


def test_version_is_the_packages(fv: Fv) -> None:
    assert fv("--version") == (0, f"fv {__version__}\n", "")


def test_no_command_prints_help_as_a_usage_error(fv: Fv) -> None:
    told = fv()
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("Usage: fv ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("genrate", "x"),
            "there is no command 'genrate'; did you mean generate? (legal: generate, models, ",
        ),
        (("--loud", "models"), "there is no option '--loud'"),
        (("--color", "sometimes", "models"), "'sometimes' is not one of 'auto', 'always', 'never'"),
        (("gen", "x"), "there is no command 'gen'; did you mean generate? (legal: generate, models, "),
        (("e",), "there is no command 'e' (legal: "),
        (("models", "shwo"), "there is no command 'shwo'; did you mean show? (legal: show)"),
        (
            ("weights", "ver", "x"),
            "there is no command 'ver'; did you mean verify? (legal: convert, list, pull, verify, where)",
        ),
        (("generate", "x", "--stepz", "3"), "there is no option '--stepz'; did you mean --steps"),
        (("generate", "x", "--neg", "fog"), "there is no option '--neg'; did you mean --negative?"),
        (("generate", "x", "--quiet"), "--quiet belongs before the command: fv --quiet generate ..."),
        (("models", "show"), "Missing argument 'ID'"),
        (("explain", "FV302", "FV303"), "Got unexpected extra argument"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(fv: Fv, arguments: tuple[str, ...], sentence: str) -> None:
    told = fv(*arguments)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("error[FV300]: command line: ")
    assert sentence in told.err
    assert told.err.count("\n") == 2


def test_json_errors_are_one_document_on_stdout(fv: Fv) -> None:
    told = fv("generate", "a cat", "--steps", "0", "--json")
    assert (told.code, told.err) == (2, "")
    error = told.json["error"]
    assert list(told.json) == ["error"]
    assert list(error) == ["code", "type", "message", "hint", "details"]
    assert (error["code"], error["type"]) == ("FV304", "invalid_steps")
    assert error["details"]["value"] == "0"


def test_json_errors_cover_the_command_line(fv: Fv) -> None:
    told = fv("models", "--json", "--frobnicate")
    assert (told.code, told.err) == (2, "")
    assert told.json["error"]["code"] == "FV300"


def fail(*arguments: object) -> None:
    raise ZeroDivisionError("division\nby \x1b[31mzero")


def test_python_runs_the_package_as_fv(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    for arguments in (("--help",), ("models", "shwo")):
        commands = ([sys.executable, "-m", "fv_core"], [str(Path(sys.executable).with_name("fv"))])
        told = [
            subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment)
            for command in commands
        ]
        one, other = ((each.returncode, each.stdout, each.stderr) for each in told)
        assert one == other


@pytest.mark.parametrize("group", ["models", "plugins", "weights", "parity"])
def test_help_of_a_group_cuts_no_line(fv: Fv, group: str) -> None:
    told = " ".join(fv(group, "--help").out.split())
    command = root.get_command(context(root), group)
    assert isinstance(command, click.Group)
    for name, inner in command.commands.items():
        assert inner.help is not None
        sentence = " ".join(inner.help.split("\n\n")[0].split()).partition(". ")[0].removesuffix(".")
        assert f"{name} {sentence}" in told


def test_an_unforeseen_failure_is_one_line(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fv_core.cli.explain._entry", fail)
    told = fv("explain", "FV302")
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith(
        "error[FV599]: fv: failed in a way that it did not foresee: ZeroDivisionError: "
    )
    assert told.err.count("\n") == 2
    assert "Traceback" not in told.err


def test_debugging_shows_the_traceback(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fv_core.cli.explain._entry", lambda code: 1 / 0)
    monkeypatch.setenv("FV_DEBUG", "1")
    told = fv("explain", "FV302")
    assert told.code == 1
    assert "Traceback" in told.err
    assert "ZeroDivisionError" in told.err
    assert "error[FV599]: " in told.err


@pytest.mark.parametrize(("value", "shown"), [("true", True), ("off", False), ("False", False)])
def test_debugging_is_switched_as_options_are(
    fv: Fv, monkeypatch: pytest.MonkeyPatch, value: str, shown: bool
) -> None:
    monkeypatch.setenv("FV_DEBUG", value)
    assert ("Traceback" in fv("explain", "FV1").err) is shown
    monkeypatch.setenv("FV_QUIET", value)
    assert fv("explain", "FV302").code == 0


def test_a_switch_that_is_neither_yes_nor_no_is_refused(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FV_DEBUG", "maybe")
    told = fv("explain", "FV302")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith(
        "error[FV316]: FV_DEBUG 'maybe': is neither yes nor no (legal: 1, true, yes, on;"
    )


def test_an_interrupt_exits_with_130(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(code: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fv_core.cli.explain._entry", interrupt)
    told = fv("explain", "FV302")
    assert (told.code, told.out) == (130, "")
    assert "error[FV510]: fv: was interrupted\n" in told.err


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("FV_GENERATE_STEP", "FV_GENERATE_STEP is not one that fv reads; did you mean FV_GENERATE_STEPS?"),
        ("FV_HOMES", "FV_HOMES is not one that fv reads; did you mean FV_HOME?"),
        ("FV_GENERATE_JSON", "FV_GENERATE_JSON is not one that fv reads"),
        ("FV_VERSION", "FV_VERSION is not one that fv reads"),
    ],
)
def test_an_unknown_variable_is_told(fv: Fv, monkeypatch: pytest.MonkeyPatch, name: str, told: str) -> None:
    monkeypatch.setenv(name, "1")
    result = fv("explain", "FV302")
    assert result.code == 0
    assert result.err.startswith(f"warning: the environment variable {told}")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    "name",
    [
        "FV_HOME",
        "FV_DEBUG",
        "FV_DEVICE",
        "FV_STRICT_PLUGINS",
        "FV_GENERATE_STEPS",
        "FV_QUIET",
        "FV_WEIGHTS_PULL_YES",
    ],
)
def test_a_known_variable_is_not_told(fv: Fv, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    assert fv("explain", "FV302").err == ""


def test_quiet_leaves_errors_and_results(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FV_HOMES", "x")
    assert fv("--quiet", "explain", "FV302").err == ""
    assert fv("--quiet", "explain", "FV302").out != ""
    assert fv("--quiet", "explain", "FV1").err.startswith("error[FV317]")


def test_color_is_always_or_never_as_asked(fv: Fv) -> None:
    assert fv("--color", "always", "explain", "FV1").err.startswith("\x1b[")
    assert fv("--color", "never", "explain", "FV1").err.startswith("error[FV317]")


@pytest.mark.parametrize("arguments", [("explain",), ("explain", "--json")])
def test_a_full_output_is_refused(arguments: tuple[str, ...], tmp_path: Path) -> None:
    code, err = written_to("/dev/full", arguments, tmp_path)
    assert code == 4
    assert err.startswith("error[FV403]: standard output: could not be written")
    assert "Traceback" not in err


def test_a_reader_that_has_seen_enough_is_no_failure_to_explain(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code, err = written_to(writer, ("explain",), tmp_path)
    assert (code, err) == (1, "")


def written_to(output: str | int, arguments: tuple[str, ...], home: Path) -> tuple[int, str]:
    with open(output, "wb") as stdout:
        command = [sys.executable, "-c", "from fv_core.cli.main import main; main()", *arguments]
        environment = {**os.environ, "HOME": str(home)}
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=environment)
    return done.returncode, done.stderr


CLOSED = """
import os, sys
for number in {closed}:
    os.close(number)
os.execv({python!r}, [{python!r}, "-m", "fv_core", *{arguments!r}])
"""
SMALL = (
    "generate",
    "a cat",
    "--seed",
    "1",
    "--size",
    "16x16",
    "--frames",
    "1",
    "--steps",
    "1",
    "--device",
    "cpu",
)


@pytest.mark.parametrize("closed", [(2,), (1, 2), (0, 1, 2)])
def test_closed_streams_cost_no_clip(closed: tuple[int, ...], tmp_path: Path) -> None:
    code = CLOSED.format(closed=closed, python=sys.executable, arguments=[*SMALL, "-o", "out.npy"])
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert (done.returncode, done.stdout) == (0, "" if 1 in closed else "out.npy\n")
    assert (tmp_path / "out.npy").read_bytes().startswith(b"\x93NUMPY")


def test_a_listener_that_has_gone_costs_no_clip(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "fv_core", *SMALL, "-o", "out.npy"]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=writer, text=True, cwd=tmp_path, env=environment
    )
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, "out.npy\n")


def test_clips_that_nobody_reads_of_are_told(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    code, err = written_to(writer, (*SMALL, "-o", str(tmp_path / "out.npy"), "--n", "2"), tmp_path)
    assert code == 1
    assert "warning: nobody reads standard output any more, so this stops; 1 clip had been written\n" in err
    assert sorted(path.name for path in tmp_path.glob("*.npy")) == ["out-1.npy"]
