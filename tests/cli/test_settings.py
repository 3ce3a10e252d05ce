"""Precedence of settings, and files that hold what they must not."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from fv_core.cli.generate import generate
from fv_core.cli.settings import config_files, configurable, key
from fv_core.cli.variables import FIXED

Fv = Callable[..., Any]


@pytest.fixture
def user_file(fv: Fv) -> Path:
    """The user's settings file, in a folder that exists."""
    file = config_files()[1]
    file.parent.mkdir(parents=True)
    return file


def planned(fv: Fv, *arguments: str) -> Any:
    told = fv("generate", "a cat", "--dry-run", "--json", *arguments)
    assert told.code == 0, told
    return told.json["request"]


def test_flag_beats_variable_beats_project_beats_user_beats_card(
    fv: Fv, work: Path, user_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert planned(fv)["steps"] == 12
    user_file.write_text("[generate]\nsteps = 2\nframes = 5\n")
    assert planned(fv)["steps"] == 2
    (work / "fv.toml").write_text("[generate]\nsteps = 3\n")
    assert planned(fv)["steps"] == 3
    monkeypatch.setenv("FV_GENERATE_STEPS", "4")
    assert planned(fv)["steps"] == 4
    settled = planned(fv, "--steps", "5")
    assert (settled["steps"], settled["frames"]) == (5, 5)


def test_every_form_of_value_is_read(fv: Fv, work: Path) -> None:
    (work / "fv.toml").write_text(
        '[generate]\nsize = "32x48"\nfps = "30000/1001"\nguidance = 3\nnegative = "fog"\nseed = 8\nsidecar = true\n'
        'set = ["shift=5"]\nmodel = "wan21/micro"\nnumerics = "fast"\n'
    )
    settled = planned(fv)
    assert settled["size"] == {"width": 32, "height": 48}
    assert settled["fps"] == 30000 / 1001
    assert (settled["guidance"], settled["negative_prompt"], settled["seed"]) == (3.0, "fog", 8)
    assert (settled["params"], settled["numerics"]) == ({"shift": 5.0}, "fast")


def test_the_device_variable_stands_in_for_the_option(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FV_DEVICE", "toaster")
    assert "FV_DEVICE (device) 'toaster'" in fv("generate", "a cat").err
    monkeypatch.setenv("FV_GENERATE_DEVICE", "kettle")
    assert "FV_GENERATE_DEVICE (device) 'kettle'" in fv("generate", "a cat").err
    assert fv("generate", "a cat", "--device", "cpu", "--dry-run").code == 0


WRONG = {
    "[generate]\nstep = 3": ("generate.step: is not a setting", "steps"),
    "[generate]\nforce = true": ("generate.force: is not a setting", "steps"),
    "[generate]\nfrom = 'x.json'": ("generate.from: is not a setting", "steps"),
    '[generate]\nsteps = "3"': ("generate.steps '3': is of the wrong type", "a number"),
    "[generate]\nsteps = true": ("generate.steps True: is of the wrong type", "a number"),
    "[generate]\nguidance = [5]": ("generate.guidance [5]: is of the wrong type", "a number"),
    "[generate]\nsidecar = 1": ("generate.sidecar 1: is of the wrong type", "true or false"),
    '[generate]\nset = "shift=5"': ("generate.set 'shift=5': is of the wrong type", "a list of strings"),
    "[generate]\nset = [5]": ("generate.set [5]: is of the wrong type", "a list of strings"),
    "[generate]\nseed = 1979-05-27": ("generate.seed ", "a number"),
    '[generate]\nsize = "3"': ("generate.size '3': is not legal", "WIDTHxHEIGHT"),
    '[generate]\nfps = "1/0"': ("generate.fps '1/0': is not legal", "30000/1001"),
    '[generate]\ndtype = "int8"': ("generate.dtype 'int8': is not legal", "'bfloat16'"),
    '[generate]\nmemory = "8GB"': ("generate.memory '8GB': is not legal", "KiB, MiB, GiB, TiB"),
    "[generate]\nmemory = 1.5": ("generate.memory 1.5: is of the wrong type", "a string"),
    "[generate]\nn = 0": ("generate.n 0: is not legal", "1<=x<=1000"),
    "[generte]\nsteps = 3": ("generte: is not a table that fv reads", "[generate]"),
    "steps = 3": ("steps: is not a table that fv reads", "[generate]"),
    "generate = 3": ("generate: is not a table that fv reads", "[generate]"),
    "steps = ": ("cannot be read", "Invalid value"),
    "\ufeff\ud800": ("cannot be read", ""),
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_refused_by_file_and_key(fv: Fv, work: Path, user_file: Path, text: str) -> None:
    for file in (work / "fv.toml", user_file):
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        told = fv("generate", "a cat", "--dry-run")
        rule, legal = WRONG[text]
        shown = "fv.toml" if file.parent == work else str(user_file)
        assert (told.code, told.out) == (2, "")
        assert told.err.startswith(f"error[FV316]: {shown}: {rule}")
        assert legal in told.err
        file.unlink()


def test_a_folder_in_place_of_a_file_is_refused(fv: Fv, work: Path) -> None:
    (work / "fv.toml").mkdir()
    assert fv("generate", "a cat").err.startswith("error[FV316]: fv.toml: cannot be read")


def test_help_and_other_verbs_do_without_settings(fv: Fv, work: Path) -> None:
    (work / "fv.toml").write_text("not toml")
    for arguments in (("generate", "--help"), ("models",), ("explain", "FV316")):
        assert fv(*arguments).code == 0


def test_what_makes_sense_once_is_neither_setting_nor_variable() -> None:
    once = {"image", "video", "audio", "action", "from", "dry-run", "force", "output", "json", "events"}
    every = {max(one.opts, key=len).lstrip("-") for one in generate.params if one.opts[0].startswith("-")}
    assert every - configurable(generate).keys() == once


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("steps", 0, "FV304"), ("size", "65x64", "FV302"), ("frames", 16, "FV303"), ("fps", 0, "FV307"),
        ("guidance", 0.5, "FV305"), ("seed", -1, "FV306"), ("model", "wan21/tini", "FV101"), ("device", "tpu", "FV312"),
        ("weights", "absent", "FV252"), ("scale", 0, "FV315"), ("offload", "component", "FV312"),
    ],
)  # fmt: skip
def test_the_source_of_a_bad_value_is_named(
    fv: Fv, work: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: object, code: str
) -> None:
    flags = () if option == "device" else ("--device", "cpu")
    (work / "fv.toml").write_text(f"[generate]\n{option} = {value!r}\n")
    assert fv("generate", "a cat", *flags).err.startswith(f"error[{code}]: fv.toml: generate.{option} (")
    name = f"FV_GENERATE_{option.upper()}"
    monkeypatch.setenv(name, str(value))
    assert fv("generate", "a cat", *flags).err.startswith(f"error[{code}]: {name} (")
    flag = fv("generate", "a cat", *flags, f"--{option}", str(value))
    assert flag.err.startswith(f"error[{code}]: ")
    assert "fv.toml" not in flag.err
    assert name not in flag.err


def test_the_source_of_a_value_without_form_is_named(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, arguments in (
        ("FV_GENERATE_SIZE", ("generate", "a cat")),
        ("FV_GENERATE_SIDECAR", ("generate", "a cat")),
        ("FV_COLOR", ("models",)),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, "purple")
            assert fv(*arguments).err.startswith(f"error[FV300]: {name}: Invalid value for ")


def test_the_device_variable_is_named_by_every_verb_that_reads_it(
    fv: Fv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FV_DEVICE", "toaster")
    for arguments in (("generate", "a cat"), ("parity", "gate", "wan21/micro")):
        assert fv(*arguments).err.startswith("error[FV312]: FV_DEVICE (device) 'toaster': ")


PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_page_on_settings_tells_every_key_and_no_other(fv: Fv, work: Path) -> None:
    example = PAGE.read_text().partition("```toml\n")[2].partition("```")[0]
    assert tomllib.loads(example)["generate"].keys() == configurable(generate).keys()
    (work / "fv.toml").write_text(example)
    found = {one["name"]: one["origin"] for one in fv("config", "--json").json["settings"]}
    assert {found[name] for name in configurable(generate)} == {"fv.toml"}


def test_the_page_on_settings_tells_what_is_no_setting() -> None:
    once = {f"--{key(one)}" for one in generate.params if isinstance(one, click.Option)}
    once -= {f"--{name}" for name in configurable(generate)}
    sentence = PAGE.read_text().partition("an option and nothing else: ")[2].partition(". ")[0]
    assert set(re.findall(r"`(--[a-z-]+)`", sentence)) == once


def test_the_page_on_settings_tells_every_variable() -> None:
    told = set(re.findall(r"`(FV_[A-Z_]+)`", PAGE.read_text().partition("## Variables")[2]))
    assert told == {*FIXED, "FV_QUIET", "FV_COLOR"}
