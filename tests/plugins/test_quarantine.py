"""Every way in which an installed plugin can be wrong: its own state, code and words, while the others generate."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from fv_core.errors import FvError
from fv_core.plugins import PluginState, Registry, all_cards, default_registry, find_card, plugin_records
from fv_core.plugins.discovery import discover
from fv_core.plugins.verdict import STATES

Install = Callable[..., Path]

DISTS = Path(__file__).parents[1] / "dists"


class Fate(NamedTuple):
    """What becomes of a distribution, and words that its reason or remedy holds."""

    state: PluginState
    code: str
    words: tuple[str, ...]


FATES = {
    "import_error": Fate(PluginState.BROKEN, "FV102", ("RuntimeError: fv-import-error does not", "--force-reinstall")),
    "misspelt_hook": Fate(PluginState.BROKEN, "FV115", ("'fv_crads'", "Did you mean fv_cards?")),
    "hook_argument": Fate(PluginState.BROKEN, "FV116", ("engine", "hooks without arguments")),
    "twin_a": Fate(PluginState.CONFLICT, "FV108", ("fv-twin-a 0.3.1", "fv-twin-b 0.3.1", "pip uninstall fv-twin-b")),
    "twin_b": Fate(PluginState.CONFLICT, "FV108", ("fv-twin-a 0.3.1", "fv-twin-b 0.3.1", "pip uninstall fv-twin-a")),
    "incompatible": Fate(PluginState.INCOMPATIBLE, "FV109", ("needs fv-core >=0.2, have 0.1.0",)),
    "stale_editable": Fate(PluginState.BROKEN, "FV110", ("fv-stale-editable 0.3.1 (editable, ", "source is gone")),
    "no_api": Fate(PluginState.INCOMPATIBLE, "FV103", ("fv_api: is not stated", "State fv_api = 1")),
    "wrong_api": Fate(PluginState.INCOMPATIBLE, "FV103", ("fv_api 2: is not the API", "legal: 1")),
    "raising_cards": Fate(PluginState.BROKEN, "FV117", ("fv_cards", "LookupError: the cards are lost")),
    "undeclared_loop": Fate(PluginState.INVALID, "FV201", ("flow.dmd4/v1", "flow.euler.cfg/v1")),
    "few_steps": Fate(PluginState.INVALID, "FV203", ("'50 to 50'", "4 to 4")),
    "same_id": Fate(PluginState.INVALID, "FV104", ("'same-id/tiny' appears twice",)),
    "missing_extra": Fate(PluginState.BROKEN, "FV114", ("fv_absent_codecs", '"fv-missing-extra[codecs]"')),
    "unmarked_hook": Fate(PluginState.BROKEN, "FV121", ("fv_cards: is not marked", "@hookimpl")),
    "good": Fate(PluginState.READY, "", ()),
}  # fmt: skip


def test_every_distribution_has_a_fate() -> None:
    assert {path.parent.name for path in DISTS.glob("*/pyproject.toml")} == FATES.keys()
    codes = {fate.code for name, fate in FATES.items() if name not in ("twin_b", "wrong_api")}
    assert len(codes) == len(FATES) - 2  # a kind of fault has a code of its own


def test_the_guide_has_every_state_and_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "plugin-guide.md").read_text()
    told = {code: state for state, code in re.findall(r"^\| (\w+) \| (FV\d+) \|", text, re.MULTILINE)}
    assert told == {code: state.value for code, state in STATES.items()}


def test_all_at_once_have_their_states_and_the_others_work(install_dists: Install) -> None:
    install_dists()
    found = {record.dist: record for record in default_registry().check()}
    for name, fate in FATES.items():
        record = found["fv-" + name.replace("_", "-")]
        assert (record.state, record.code) == (fate.state, fate.code), record
        told = f"{record.reason} {record.remedy}"
        assert [word for word in fate.words if word not in told] == [], told
        assert (record.provides != ()) is (name == "good")
    assert found["fv-wan21"].state is PluginState.READY
    assert {card.model_id for card in all_cards()} == {
        offer.id for record in found.values() for offer in record.provides if offer.kind == "card"
    }


def test_good_plugins_generate_among_all_broken_ones(install_dists: Install) -> None:
    from fv_core import Engine, Request

    install_dists()
    default_registry().check()
    with Engine(["wan21/micro", "good/tiny"], device="cpu") as engine:
        small = Request(prompt="a ball", seed=1, size=(16, 16), frames=5, steps=1)
        clips = [engine.run(replace(small, model=model)) for model in ("wan21/micro", "good/tiny")]
    assert (clips[0].frames == clips[1].frames).all()
    assert clips[1].used.plugin == "fv-good 0.3.1"


@pytest.mark.parametrize("name", [name for name in FATES if name != "good"])
def test_naming_a_broken_plugin_raises_its_code(name: str, install_dists: Install) -> None:
    names = ("twin_a", "twin_b") if name.startswith("twin") else (name,)
    install_dists(*names)
    entry = "twin" if name.startswith("twin") else name.replace("_", "-")
    for _ in range(2):
        with pytest.raises(FvError) as caught:
            find_card(f"{entry}/tiny")
        assert caught.value.code == FATES[name].code
        assert f"fv-{name.replace('_', '-')}" in caught.value.message or FATES[name].code in (
            "FV201",
            "FV203",
        )
        assert caught.value.remedy
    assert find_card("wan21/micro")


def test_a_failed_import_leaves_no_module_behind(install_dists: Install) -> None:
    install_dists("import_error")
    assert default_registry().findings("import-error")[0].code == "FV102"
    assert [name for name in sys.modules if name.startswith("fv_import_error")] == []


def test_verdicts_by_metadata_import_nothing(install_dists: Install) -> None:
    install_dists()
    states = {record.dist: record.state for record in plugin_records()}
    assert states["fv-incompatible"] is PluginState.INCOMPATIBLE
    assert states["fv-twin-a"] is states["fv-twin-b"] is PluginState.CONFLICT
    assert states["fv-stale-editable"] is PluginState.BROKEN
    assert states["fv-import-error"] is states["fv-good"] is PluginState.DISCOVERED
    assert not any(name.startswith(("fv_good", "fv_import", "fv_twin", "fv_incomp")) for name in sys.modules)


def test_pip_leaves_what_the_tests_write(install_dists: Install, tmp_path: Path) -> None:
    written = install_dists()
    target = tmp_path / "pip"
    sources = [str(DISTS / name) for name in FATES if name != "stale_editable"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    options = ["--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([*pip, *options, *sources], check=True, cwd=tmp_path)

    def facts(site: Path) -> list[tuple[object, ...]]:
        found = discover([str(site)])
        return [
            (one.name, one.module, str(one), one.state, one.code, one.reason.replace(str(site), "SITE"))
            for one in found
            if one.dist != "fv-stale-editable"
        ]

    assert facts(target) == facts(written)
    assert all(record.location == str(target) for record in discover([str(target)]))


def test_strict_raises_for_any_plugin_that_does_not_work(install_dists: Install) -> None:
    install_dists("good", "raising_cards")
    strict = Registry(discover(), strict=True)
    for call in (strict.cards, lambda: strict.load("good"), lambda: strict.find_card("good/tiny")):
        with pytest.raises(FvError) as caught:
            call()
        assert caught.value.code == "FV117"
    install_dists("incompatible")
    with pytest.raises(FvError) as caught:
        Registry(discover(), strict=True).load("good")
    assert caught.value.code == "FV109"


@pytest.mark.parametrize(
    ("value", "strict"),
    [("1", True), ("On", True), ("0", False), ("false", False), (" no ", False), ("", False)],
)
def test_the_switch_is_read_like_every_other(
    value: str, strict: bool, install_dists: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_dists("good", "raising_cards")
    monkeypatch.setenv("FV_STRICT_PLUGINS", value)
    if strict:
        with pytest.raises(FvError, match="raising-cards"):
            find_card("good/tiny")
    else:
        assert find_card("good/tiny")


def test_a_switch_that_is_neither_yes_nor_no_is_refused(
    install_dists: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_dists("good")
    monkeypatch.setenv("FV_STRICT_PLUGINS", "maybe")
    with pytest.raises(FvError) as caught:
        default_registry()
    assert (caught.value.code, caught.value.value) == ("FV316", "maybe")
