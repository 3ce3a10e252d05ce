"""`fv validate`: all findings of a card at once, another recipe tried on it, every reference imported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Fv = Callable[..., Any]
Install = Callable[..., Path]


def test_every_installed_card_is_valid_and_resolves(fv: Fv) -> None:
    told = fv("validate", "--all", "--resolve")
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    assert lines[-3:] == ["wan21/micro: valid", "wan21/t2v-1.3b: valid", "wan21/t2v-14b: valid"]
    assert all(line.endswith(": valid") for line in lines)
    assert fv("validate", "wan21/micro").out == "wan21/micro: valid\n"


def test_a_card_that_breaks_rules_is_told_with_all_of_them(fv: Fv, install_dists: Install) -> None:
    site = install_dists("few_steps")
    package = site / "fv_few_steps" / "__init__.py"
    package.write_text(package.read_text().replace("assumes_loop=SEMANTICS", 'assumes_loop="ar/v1"'))
    told = fv("validate", "few-steps/tiny")
    assert told.code == 1
    assert told.out.startswith(
        "few-steps/tiny: 2 problems\n  FV201 card \"few-steps/tiny\": recipe.assumes_loop 'ar/v1'"
    )
    assert "\n  FV203 " in told.out
    assert "Bind a loop with that semantics" in told.out
    document = fv("validate", "wan21/micro", "few-steps/tiny", "--json").json
    assert [one["ok"] for one in document["cards"]] == [True, False]
    assert [one["code"] for one in document["cards"][1]["findings"]] == ["FV201", "FV203"]
    assert document["ok"] is False


def test_all_tells_of_plugins_that_do_not_load(fv: Fv, install_dists: Install) -> None:
    install_dists("raising_cards", "good")
    told = fv("validate", "--all")
    assert told.code == 1
    assert "good/tiny: valid\n" in told.out
    assert "raising-cards/?: 1 problem\n  FV117 " in told.out


def test_resolve_imports_every_reference(fv: Fv, install_dists: Install) -> None:
    site = install_dists("same_id")
    package = site / "fv_same_id" / "__init__.py"
    package.write_text(package.read_text().replace("[CARD, CARD]", "[CARD]"))
    assert fv("validate", "same-id/tiny").code == 0
    told = fv("validate", "same-id/tiny", "--resolve")
    assert told.code == 1
    assert told.out.startswith("same-id/tiny: 3 problems\n  FV105 same-id/tiny component text: reference ")
    components = "text = dit = vae = None\n"
    (site / "fv_same_id" / "components.py").write_text(components)
    assert fv("validate", "same-id/tiny", "--resolve").code == 0
    (site / "fv_same_id" / "components.py").write_text(components)


def test_resolve_imports_what_only_other_commands_use(fv: Fv, install_dists: Install) -> None:
    """What makes probes, and what converts a published pickle."""
    package = install_dists("good") / "fv_good" / "__init__.py"
    changed = package.read_text().replace(
        'return [derive(MICRO, model_id="good/tiny", family="good")]',
        'vae = replace(MICRO.components["vae"], convert="fv_good:absent_convert")\n'
        '    parts = {**MICRO.components, "vae": vae}\n'
        '    parity = {"probes": "fv_good:absent_probes"}\n'
        '    return [derive(MICRO, model_id="good/tiny", components=parts, parity=parity)]',
    )
    package.write_text(
        changed.replace("from fv_core import", "from dataclasses import replace\n\nfrom fv_core import")
    )
    assert fv("validate", "good/tiny").code == 0
    told = fv("validate", "good/tiny", "--resolve").out
    assert ("absent_convert" in told, "absent_probes" in told) == (True, True)


def test_resolve_builds_the_loops(fv: Fv, install_dists: Install) -> None:
    site = install_dists("good")
    package = site / "fv_good" / "__init__.py"
    changed = package.read_text().replace(
        'return [derive(MICRO, model_id="good/tiny", family="good")]',
        'spec = MICRO.loops["denoise"]\n'
        '    loops = {**MICRO.loops, "denoise": replace(spec, params={"tempo": 1})}\n'
        '    return [derive(MICRO, model_id="good/tiny", loops=loops)]',
    )
    package.write_text(
        changed.replace("from fv_core import", "from dataclasses import replace\n\nfrom fv_core import")
    )
    assert fv("validate", "good/tiny").code == 0
    told = fv("validate", "good/tiny", "--resolve")
    assert told.code == 1
    assert "FV206" in told.out
    assert "parameter tempo" in told.out


@pytest.mark.parametrize(
    ("name", "text", "codes"),
    [
        ("r.toml", "steps = 4\nsteps_fixed = true", ["FV203"]),
        ("r.toml", 'assumes_loop = "flow.dmd4/v1"', ["FV201"]),
        ("r.json", json.dumps({"consistency_required": "C3"}), ["FV209"]),
        ("r.json", json.dumps({"type": "RecipeSpec", "precision": "float64", "shift": 0}), ["FV203", "FV208"]),
        ("r.json", json.dumps({"steps": 30, "method": "finetune"}), []),
    ],
)  # fmt: skip
def test_another_recipe_is_tried_on_the_card(
    fv: Fv, work: Path, name: str, text: str, codes: list[str]
) -> None:
    (work / name).write_text(text)
    told = fv("validate", "wan21/micro", "--recipe", work / name, "--json")
    assert told.code == (1 if codes else 0)
    assert [one["code"] for one in told.json["cards"][0]["findings"]] == codes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.toml", "steps ="), ("r.toml", "stepz = 3"), ("r.toml", 'steps = "3"'), ("r.json", "[]"), ("r.json", "{"),
        ("r.json", '{"method": "magic"}'),
    ],
)  # fmt: skip
def test_what_is_no_recipe_is_refused(fv: Fv, work: Path, name: str, text: str) -> None:
    (work / name).write_text(text)
    told = fv("validate", "wan21/micro", "--recipe", work / name)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith(f"error[FV316]: {work / name}: is not a recipe: ")


def test_ids_or_all_but_not_both_nor_neither(fv: Fv) -> None:
    for arguments in ((), ("wan21/micro", "--all")):
        assert fv("validate", *arguments).err.startswith(
            "error[FV300]: command line: name models, or give --all"
        )
    assert fv("validate", "wan21/tine").err.startswith("error[FV101]: model 'wan21/tine'")
