"""`fv config` tells each setting with where it comes from, just as `fv generate` would take it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fv_core.cli.settings import config_files

Fv = Callable[..., Any]


def settings(fv: Fv, *options: str) -> dict[str, tuple[object, str]]:
    told = fv("config", "--json", *options)
    assert (told.code, told.err) == (0, ""), told
    return {one["name"]: (one["value"], one["origin"]) for one in told.json["settings"]}


def test_each_place_is_named_in_the_order_of_precedence(
    fv: Fv, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings(fv)["steps"] == (12, "card wan21/micro")
    user = config_files()[1]
    user.parent.mkdir(parents=True)
    user.write_text("[generate]\nsteps = 2\nframes = 5\nsize = '32x48'\n")
    assert settings(fv)["steps"] == (2, str(user))
    assert settings(fv)["size"] == ("32x48", str(user))
    (work / "fv.toml").write_text("[generate]\nsteps = 3\nset = ['shift=5']\n")
    assert settings(fv)["steps"] == (3, "fv.toml")
    monkeypatch.setenv("FV_GENERATE_STEPS", "4")
    assert settings(fv)["steps"] == (4, "FV_GENERATE_STEPS")
    found = settings(fv, "--steps", "5")
    assert found["steps"] == (5, "flag")
    assert found["frames"] == (5, str(user))
    assert found["set"] == (["shift=5"], "fv.toml")
    planned = fv("generate", "a cat", "--dry-run", "--json", "--steps", "5").json["request"]
    assert (planned["steps"], planned["frames"], planned["params"]["shift"]) == (5, 5, 5.0)


def test_the_card_is_that_of_the_chosen_model(fv: Fv) -> None:
    found = settings(fv, "--model", "wan21/t2v-14b")
    assert found["model"] == ("wan21/t2v-14b", "flag")
    assert found["size"] == ("832x480", "card wan21/t2v-14b")
    assert found["steps"] == (50, "card wan21/t2v-14b")
    assert settings(fv)["n"] == (1, "built in")


def test_the_device_has_two_variables(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings(fv)["device"] == ("auto", "built in")
    monkeypatch.setenv("FV_DEVICE", "cpu")
    assert settings(fv)["device"] == ("cpu", "FV_DEVICE")
    monkeypatch.setenv("FV_GENERATE_DEVICE", "cuda")
    assert settings(fv)["device"] == ("cuda", "FV_GENERATE_DEVICE")


def test_what_only_variables_set_is_told(fv: Fv, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert settings(fv)["FV_PLUGINS"] == (None, "built in")
    monkeypatch.setenv("FV_PLUGINS", "wan21")
    monkeypatch.setenv("FV_HOME", str(tmp_path))
    assert settings(fv)["FV_PLUGINS"] == ("wan21", "FV_PLUGINS")
    assert settings(fv)["FV_HOME"] == (str(tmp_path), "FV_HOME")


def test_config_is_a_table(fv: Fv) -> None:
    told = fv("config")
    lines = [line.split() for line in told.out.splitlines()]
    assert (told.code, told.err, lines[0]) == (0, "", ["SETTING", "VALUE", "FROM"])
    assert ["steps", "12", "card", "wan21/micro"] in lines


@pytest.mark.parametrize("options", [("--stepz", "3"), ("--steps", "many"), ("--n", "0")])
def test_a_wrong_option_is_refused_as_generate_refuses_it(fv: Fv, options: tuple[str, ...]) -> None:
    assert fv("config", *options).err == fv("generate", "a cat", *options).err


def test_a_wrong_file_is_refused(fv: Fv, work: Path) -> None:
    (work / "fv.toml").write_text("[generate]\nstep = 3\n")
    assert fv("config").err.startswith("error[FV316]: fv.toml: generate.step: is not a setting")
