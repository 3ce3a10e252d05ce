"""`fv validate`: every load-time rule of installed cards, and with --resolve every reference that they name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click

from fv_core import codec
from fv_core.card import ModelCard, RecipeSpec, derive
from fv_core.card import validate as card_findings
from fv_core.cli.commands import Command, json_option
from fv_core.cli.completion import model_ids
from fv_core.cli.findings import resolve_card, resolve_interceptor
from fv_core.cli.output import Out
from fv_core.errors import FvError, RequestError
from fv_core.plugins import PluginState, default_registry


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """What was found out about one card, or about a plugin whose cards cannot be had."""

    subject: str
    findings: tuple[FvError, ...]

    def to_json(self) -> dict[str, object]:
        told = [finding.to_json() for finding in self.findings]
        return {"id": self.subject, "ok": not self.findings, "findings": told}


@click.command(cls=Command)
@click.argument("model_id", metavar="ID...", nargs=-1, shell_complete=model_ids)
@click.option("--all", "everything", is_flag=True, allow_from_autoenv=False, help="All cards of all plugins.")
@click.option(
    "--recipe", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    allow_from_autoenv=False, help="Validate the cards with this recipe in place of their own (JSON or TOML).",
)  # fmt: skip
@click.option(
    "--resolve",
    is_flag=True,
    allow_from_autoenv=False,
    help="Also import every reference, and build the loops.",
)
@json_option
@click.pass_obj
def validate(
    out: Out, model_id: tuple[str, ...], everything: bool, recipe: Path | None, resolve: bool, as_json: bool
) -> None:
    """Check cards against every load-time rule.

    All findings are told; exit 1 if there is one.
    """
    if everything == bool(model_id):
        raise click.UsageError("name models, or give --all for all of them.")
    stated = {} if recipe is None else _recipe(recipe)
    verdicts = _all(stated, resolve) if everything else [_one(ident, stated, resolve) for ident in model_id]
    if as_json:
        out.document({"ok": _sound(verdicts), "cards": [verdict.to_json() for verdict in verdicts]})
    else:
        for verdict in verdicts:
            _tell(out, verdict)
    if not _sound(verdicts):
        raise click.exceptions.Exit(1)


def _sound(verdicts: Sequence[_Verdict]) -> bool:
    return not any(verdict.findings for verdict in verdicts)


def _tell(out: Out, verdict: _Verdict) -> None:
    count = len(verdict.findings)
    told = "valid" if not count else f"{count} problem{'' if count == 1 else 's'}"
    out.lines(f"{verdict.subject}: {told}")
    for finding in verdict.findings:
        out.lines(f"  {finding.code} {finding.message}", f"        {finding.remedy}")


def _all(recipe: dict[str, Any], resolve: bool) -> list[_Verdict]:
    registry = default_registry()
    found = []
    for record in registry.records():
        if record.state is PluginState.BLOCKED:
            continue
        if findings := registry.findings(record.name):
            found.append(_Verdict(subject=f"{record.name}/?", findings=findings))
        else:
            plugin = registry.load(record.name)
            found += [_checked(card, recipe, resolve) for card in plugin.cards]
            for spec in plugin.interceptors if resolve else ():
                found.append(_Verdict(subject=spec.id, findings=tuple(resolve_interceptor(spec))))
    return found


def _one(ident: str, recipe: dict[str, Any], resolve: bool) -> _Verdict:
    """Raises:
    PluginError: FV101 there is no such model, or what keeps its plugin from loading beside its cards.
    """
    registry = default_registry()
    namespace = ident.partition("/")[0]
    states = {record.name for record in registry.records()}
    if namespace in states and (findings := registry.findings(namespace)):
        return _Verdict(subject=ident, findings=findings)
    return _checked(registry.find_card(ident), recipe, resolve)


def _checked(card: ModelCard, recipe: dict[str, Any], resolve: bool) -> _Verdict:
    card = derive(card, recipe=recipe)
    findings: tuple[FvError, ...] = card_findings(card)
    if resolve and not findings:
        findings = tuple(resolve_card(card))
    return _Verdict(subject=card.model_id, findings=findings)


def _recipe(file: Path) -> dict[str, Any]:
    """The fields that the file states, each of its type; the rest stays the card's.

    Raises:
        RequestError: FV316, it cannot be read, or holds what a recipe does not.
    """
    import tomllib  # only this option reads it

    kinds = codec.field_types(RecipeSpec)
    try:
        text = file.read_text(encoding="utf-8")
        stored = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
        if not isinstance(stored, dict):
            raise codec.DecodeError("expected an object")
        stored.pop("type", None)
        unknown = sorted(stored.keys() - kinds.keys())
        if unknown:
            raise codec.DecodeError(f"unknown {', '.join(unknown)}")
        return {name: codec.decode(cast(Any, kinds[name]), value) for name, value in stored.items()}
    except (OSError, ValueError) as error:
        raise RequestError(
            "FV316",
            name=str(file),
            rule=f"is not a recipe: {error}",
            legal=", ".join(kinds),
            remedy="Give a table of these fields, as JSON or TOML.",
        ) from error
