"""Shell completion: ids of models and plugins, error codes; a broken plugin completes to nothing and says nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from fv_core.cli.main import fv as root

Install = Callable[..., Path]
PLUGINS = ("bagel", "cosmos3", "ltx2", "wan-causal", "wan21")


def completed(*words: str) -> list[str]:
    """What a shell offers after `fv` and these words, the last of them unfinished."""
    shell = ShellComplete(root, {}, "fv", "_FV_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize(
    "words",
    [("generate", "--model"), ("models", "show"), ("weights", "pull"), ("validate",), ("validate", "x")],
)
def test_ids_of_models_are_offered(words: tuple[str, ...], install_dists: Install) -> None:
    install_dists("good", "raising_cards")
    wan21 = ["wan21/tiny", "wan21/micro", "wan21/t2v-1.3b", "wan21/t2v-14b"]
    every = completed(*words, "")
    assert [ident for ident in every if ident.startswith(("good/", "wan21/"))] == ["good/tiny", *wan21]
    assert {ident.partition("/")[0] for ident in every} == {"good", *PLUGINS}
    assert completed(*words, "wan21/t2") == wan21[2:]
    assert completed(*words, "absent/") == []
    assert completed(*words, "raising-cards/") == []


def test_past_the_slash_only_one_plugin_is_imported(install_dists: Install) -> None:
    import sys

    install_dists("good", "raising_cards")
    assert completed("models", "show", "good/") == ["good/tiny"]
    assert "fv_raising_cards" not in sys.modules


def test_names_of_plugins_and_codes_are_offered(install_dists: Install) -> None:
    install_dists("good", "raising_cards")
    assert completed("plugins", "show", "") == sorted(["good", "raising-cards", *PLUGINS])
    assert completed("plugins", "show", "w") == ["wan-causal", "wan21"]
    assert completed("--plugins", "wan21,g") == ["wan21,good"]
    assert completed("explain", "fv21")[:2] == ["FV210", "FV211"]


def test_a_wrong_fv_plugins_completes_to_nothing(
    install_dists: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FV_PLUGINS", "absent")
    install_dists("good")
    assert completed("models", "show", "") == completed("plugins", "show", "") == []


def test_verbs_are_offered() -> None:
    assert set(completed("")) == set(root.list_commands(click.Context(root)))
    assert completed("plug") == ["plugins"]
