"""`fv plugins`: a listing that imports nothing and never breaks, the truth with --check, and an author's check."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fv_core import derive
from fv_core.cli.findings import resolve_card
from fv_core.plugins import Registry, find_card
from fv_core.plugins.discovery import discover

Fv = Callable[..., Any]
Install = Callable[..., Path]

ROOT = Path(__file__).parents[2]
DISTS = ROOT / "tests" / "dists"


@pytest.fixture
def only_broken(install_dists: Install, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A machine on which every plugin is broken."""
    names = [path.parent.name for path in DISTS.glob("*/pyproject.toml") if path.parent.name != "good"]
    registry = Registry(discover([str(install_dists(*names))]))
    for module in (
        "fv_core.cli.plugins",
        "fv_core.plugins.registry",
        "fv_core.cli.env",
        "fv_core.cli.validate",
    ):
        monkeypatch.setattr(f"{module}.default_registry", lambda: registry)
    return registry


def rows(told: Any) -> dict[str, list[str]]:
    """The lines of a table by distribution."""
    return {line.split()[1]: line.split() for line in told.out.splitlines()[1:]}


def test_the_listing_imports_no_plugin_and_works_when_every_one_is_broken(
    fv: Fv, only_broken: Registry
) -> None:
    told = fv("plugins")
    assert told.code == 0
    assert told.out.splitlines()[0].split() == ["NAME", "DIST", "VERSION", "STATE", "PROVIDES"]
    assert rows(told)["fv-import-error"] == ["import-error", "fv-import-error", "0.3.1", "discovered", "-"]
    assert rows(told)["fv-incompatible"][3:5] == ["incompatible", "FV109:"]
    assert rows(told)["fv-twin-a"][3] == rows(told)["fv-twin-b"][3] == "conflict"
    assert rows(told)["fv-stale-editable"][3] == "broken"
    assert len(fv("plugins", "--json").json["plugins"]) == len(rows(told)) == 15
    assert fv("plugins", "--requirements").out.splitlines()[0] == "fv-few-steps==0.3.1"
    assert not any(name.startswith(("fv_import_error", "fv_no_api", "fv_twin")) for name in sys.modules)


def test_every_other_listing_works_when_every_plugin_is_broken(fv: Fv, only_broken: Registry) -> None:
    for arguments in (("models",), ("env",), ("--help",), ("explain", "FV102")):
        assert fv(*arguments).code == 0, arguments
    assert "broken" in fv("models").out
    assert "fv-twin-a 0.3.1, conflict error[FV108]" in fv("env").out
    assert fv("validate", "--all").code == 1


def test_check_fills_the_table_and_fails_if_a_plugin_does_not_work(fv: Fv, install_dists: Install) -> None:
    install_dists("good", "raising_cards")
    told = fv("plugins", "--check")
    assert told.code == 1
    assert rows(told)["fv-good"] == ["good", "fv-good", "0.3.1", "ready", "1", "card"]
    assert rows(told)["fv-wan21"][3:] == ["ready", "4", "cards"]
    assert rows(told)["fv-raising-cards"][3:5] == ["broken", "FV117:"]
    assert "note: raising-cards: Report it to the plugin's author" in told.err
    document = fv("plugins", "--check", "--json").json
    assert [one["name"] for one in document["plugins"] if one["state"] != "ready"] == ["raising-cards"]


def test_check_passes_when_all_work_and_tells_what_is_blocked(
    fv: Fv, install_dists: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_dists("good", "raising_cards")
    monkeypatch.setenv("FV_PLUGINS", "good")
    told = fv("plugins", "--check")
    assert told.code == 0
    assert rows(told)["fv-raising-cards"][3:5] == ["blocked", "FV111:"]
    assert rows(told)["fv-wan21"][3] == "blocked"


def test_a_misspelt_name_in_fv_plugins_is_exit_3(
    fv: Fv, install_dists: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_dists("good")
    monkeypatch.setenv("FV_PLUGINS", "wan2")
    for arguments in (("plugins",), ("models",), ("generate", "a cat")):
        told = fv(*arguments)
        assert (told.code, told.out) == (3, "")
        assert told.err.startswith(
            "error[FV112]: FV_PLUGINS 'wan2': is not an installed plugin (legal: bagel, cosmos3, good,"
        )
        assert "hint: Did you mean wan21?" in told.err


def test_the_option_is_the_variable_and_goes_before_it(
    fv: Fv, install_dists: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_dists("good", "same_id")
    monkeypatch.setenv("FV_PLUGINS", "good")
    assert rows(fv("--plugins", "wan21", "plugins"))["fv-good"][3:5] == ["blocked", "FV111:"]
    assert [row.split("/")[0] for row in fv("--plugins", "wan21,good", "models").out.splitlines()[1:]] == [
        "good", "wan21", "wan21", "wan21", "wan21",
    ]  # fmt: skip
    assert fv("--plugins", "", "models").out.split() == ["MODEL", "TASKS", "SIZE", "WEIGHTS", "ABOUT"]
    blocked = fv("--plugins", "good", "generate", "a cat", "--model", "wan21/micro")
    assert (blocked.code, blocked.out) == (3, "")
    assert "is blocked: --plugins is 'good'\nhint: Add wan21 to --plugins, or do without it." in blocked.err
    settings = fv("--plugins", "wan21", "config", "--json").json["settings"]
    assert {"name": "FV_PLUGINS", "value": "wan21", "origin": "flag"} in settings
    assert rows(fv("plugins"))["fv-good"][3] == "discovered"  # the variable again
    assert os.environ["FV_PLUGINS"] == "good"


def test_a_misspelt_name_in_the_option_is_exit_3(fv: Fv, install_dists: Install) -> None:
    install_dists("good")
    for arguments in (("plugins",), ("models",), ("explain", "FV112")):
        told = fv("--plugins", "wan2", *arguments)
        assert (told.code, told.out) == (3, "")
        assert told.err.startswith(
            "error[FV112]: --plugins 'wan2': is not an installed plugin (legal: bagel, cosmos3, good,"
        )
    assert "FV_PLUGINS" not in os.environ


def test_a_distribution_in_two_places_is_a_warning(fv: Fv, install_dists: Install, tmp_path: Path) -> None:
    site = install_dists("good")
    other = shutil.copytree(site, tmp_path / "other")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(other))
        install_dists("same_id")  # looks again
        told = fv("plugins")
    assert told.code == 0
    assert "warning: fv-good is installed 2 times" in told.err


def test_show_tells_what_a_plugin_brings(fv: Fv) -> None:
    told = fv("plugins", "show", "wan21")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("wan21  fv-wan21 0.1.0, module fv_wan21\n  location  ")
    assert "  state     ready\n  card      wan21/tiny\n" in told.out


def test_show_prints_every_finding_and_the_traceback(fv: Fv, install_dists: Install) -> None:
    site = install_dists("raising_cards")
    told = fv("plugins", "show", "raising-cards")
    assert told.code == 0
    assert "  state     broken FV117\n" in told.out
    assert f'File "{site}/fv_raising_cards/__init__.py", line ' in told.out
    assert told.out.rstrip().endswith("LookupError: the cards are lost")
    document = fv("plugins", "show", "raising-cards", "--json").json
    assert document["findings"][0]["code"] == "FV117"
    assert "LookupError" in document["traceback"]


def test_show_refuses_an_unknown_plugin(fv: Fv) -> None:
    told = fv("plugins", "show", "wan22")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("error[FV113]: plugin 'wan22': is not installed")
    assert "Did you mean wan21?" in told.err


@pytest.mark.usefixtures("forget")
def test_check_of_a_folder_that_is_sound_says_so(fv: Fv, few_gates: list[str]) -> None:
    told = fv("plugins", "check", DISTS / "good")
    assert (told.code, told.err) == (0, "")
    first, second, *gates = told.out.splitlines()
    assert first == "good: fv-good 0.3.1, ready, brings 1 card"
    assert second.startswith("no findings")
    assert [line.split()[:3] for line in gates] == [["good/tiny", "gate", name] for name in few_gates]
    assert all(line.endswith(" passed") for line in gates)
    quick = fv("plugins", "check", ROOT / "plugins" / "fv-wan21", "--quick", "--json").json
    assert (quick["ok"], quick["gates"]) == (True, [])


@pytest.mark.usefixtures("forget", "few_gates")
def test_check_of_a_folder_fails_on_a_gate(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    from fv_core.loop.flow_denoise import FlowDenoise

    def impure(loop: Any, state: Any) -> Any:
        state.latent.add_(1)
        return original(loop, state)

    original = FlowDenoise.next
    monkeypatch.setattr(FlowDenoise, "next", impure)
    document = fv("plugins", "check", DISTS / "good", "--json").json
    states = {one["gate"]: one["state"] for one in document["gates"]}
    assert (document["ok"], document["findings"], states["next"]) == (False, [], "failed")


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raising_cards", ("FV117", "fv_raising_cards/__init__.py:15")),
        ("few_steps", ("FV203 ", "'50 to 50'")),
        ("same_id", ("FV104 ", "appears twice")),
        ("incompatible", ("FV109 ", "needs fv-core >=0.2")),
        ("undeclared_loop", ("FV201 ",)),
        ("import_error", ("FV102 ", "fv_import_error/__init__.py:7")),
    ],
)
def test_check_of_a_folder_tells_what_is_wrong_and_where(fv: Fv, name: str, words: tuple[str, ...]) -> None:
    told = fv("plugins", "check", DISTS / name)
    assert told.code == 1
    assert [word for word in words if word not in told.out] == [], told.out


@pytest.mark.usefixtures("forget")
def test_check_of_a_folder_resolves_every_reference(fv: Fv, tmp_path: Path) -> None:
    source = shutil.copytree(DISTS / "same_id", tmp_path / "plugin")
    package = source / "fv_same_id" / "__init__.py"
    package.write_text(package.read_text().replace("[CARD, CARD]", "[CARD]"))
    document = fv("plugins", "check", source, "--json").json
    assert not document["ok"]
    assert {one["code"] for one in document["findings"]} == {"FV105"}
    assert sorted(one["details"]["value"] for one in document["findings"]) == [
        f"'fv_same_id.components:{part}'".strip("'") for part in ("dit", "text", "vae")
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("[project", "cannot be read"),
        ("project = 3", "has another form"),
        ('[project]\nname = "x"\nentry-points.fv = 3', "has another form"),
        ('[project]\nname = "x"\n', "declares no plugin"),
    ],
)
def test_check_refuses_what_is_no_plugin(fv: Fv, work: Path, text: str | None, words: str) -> None:
    if text is not None:
        (work / "pyproject.toml").write_text(text)
    told = fv("plugins", "check", work)
    assert (told.code, told.out) == (3, "")
    assert told.err.startswith("error[FV119]: ")
    assert words in told.err


def test_check_refuses_what_is_no_folder(fv: Fv, work: Path) -> None:
    assert fv("plugins", "check", work / "absent").code == 2


def test_check_of_a_card_finds_a_prediction_of_memory_that_fails() -> None:
    card = find_card("wan21/micro")
    vae = replace(card.components["vae"], activation="builtins:len")
    (found,) = resolve_card(derive(card, components={**card.components, "vae": vae}))
    assert (found.code, found.value) == ("FV122", "builtins:len")
    assert resolve_card(card) == []
