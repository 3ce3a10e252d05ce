"""`fv models`: the installed cards, what is wrong with plugins that do not load, and one card in full."""

from __future__ import annotations

import click

from fv_core.card import ModelCard
from fv_core.card.schema import request_schema
from fv_core.cli.commands import Group, json_option
from fv_core.cli.completion import model_ids
from fv_core.cli.output import Out, human_bytes
from fv_core.cli.presence import presence
from fv_core.cli.show import card_lines
from fv_core.plugins import all_cards, broken_plugins, find_card

_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@click.group(cls=Group, invoke_without_command=True)
@json_option
@click.pass_context
def models(ctx: click.Context, as_json: bool) -> None:
    """List the installed models, or show one.

    SIZE is what the parameters take in memory at the precision that the model has on an accelerator.
    """
    if ctx.invoked_subcommand is not None:
        return
    out = ctx.ensure_object(Out)
    if as_json:
        out.document({"models": [_facts(card) for card in all_cards()], "broken": _broken()})
        return
    rows = [(*_cells(card), card.summary) for card in all_cards()]
    for record, error in broken_plugins().items():
        rows.append((f"{record.name}/?", "-", "-", "broken", f"{record}: error[{error.code}] {error.rule}"))
    out.table(("MODEL", "TASKS", "SIZE", "WEIGHTS", "ABOUT"), rows)
    if not rows:
        out.notice("no model plugin is installed, so there is nothing to run")


@models.command()
@click.argument("model_id", metavar="ID", shell_complete=model_ids)
@click.option(
    "--schema",
    is_flag=True,
    allow_from_autoenv=False,
    help="Print the legal requests as JSON Schema instead.",
)
@json_option
@click.pass_obj
def show(out: Out, model_id: str, schema: bool, as_json: bool) -> None:
    """Show the card of model ID.

    With --json all of it, as `ModelCard.from_json` reads it. Its digest is not that of this text: values that a card
    leaves at their defaults do not count.
    """
    card = find_card(model_id)
    if schema:
        out.document(request_schema(card))
        return
    out.lines(*([card.to_json()] if as_json else card_lines(card, presence(card))))


def _cells(card: ModelCard) -> tuple[str, str, str, str]:
    return card.model_id, ", ".join(card.capabilities), human_bytes(_size(card)), presence(card)


def _facts(card: ModelCard) -> dict[str, object]:
    return {
        "id": card.model_id,
        "tasks": list(card.capabilities),
        "parameters": sum(spec.parameters for spec in card.components.values()),
        "weight_bytes": _size(card),
        "weights": presence(card),
        "summary": card.summary,
        "digest": card.digest(),
    }


def _size(card: ModelCard) -> int:
    """Of the parameters; a plan weighs the modules themselves, which this listing does not load."""
    number = _DTYPE_BYTES[card.precision.accelerator]
    return sum(
        spec.parameters * (number if spec.dtype == "card" else _DTYPE_BYTES[spec.dtype])
        for spec in card.components.values()
    )


def _broken() -> list[dict[str, object]]:
    return [
        {"plugin": record.name, "dist": record.dist, "version": record.version, "error": error.to_json()}
        for record, error in broken_plugins().items()
    ]
