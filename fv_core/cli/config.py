"""`fv config`: the settings that `fv generate` would use, and where each of them comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import click
from click.core import ParameterSource

from fv_core.card import ModelCard
from fv_core.cli.commands import Command, json_option
from fv_core.cli.generate import generate
from fv_core.cli.output import Out
from fv_core.cli.settings import configurable, origins
from fv_core.cli.sources import variable
from fv_core.home import home
from fv_core.plugins import find_card
from fv_core.runtime.models import default_model

_VERB: Final = "generate"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """One setting. `origin` is "flag", a variable's name, a file, the card's id, or "built in"."""

    name: str
    value: object
    origin: str


@click.command(cls=Command, context_settings={"ignore_unknown_options": True})
@json_option
@click.argument("options", metavar="OPTION...", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def config(ctx: click.Context, options: tuple[str, ...], as_json: bool) -> None:
    """Show what `fv generate` would use, and from where.

    Flags come first, then FV_GENERATE_<OPTION>, ./fv.toml, the user's config.toml, and the card. Options of
    `fv generate` may be given to see what they change.
    """
    out = ctx.ensure_object(Out)
    found = [*_options(ctx, [*(["--json"] if as_json else []), *options]), *_variables(ctx)]
    if as_json:
        out.document({"settings": [asdict(one) for one in found]})
        return
    out.table(("SETTING", "VALUE", "FROM"), [(one.name, _told(one.value), one.origin) for one in found])


def _options(ctx: click.Context, given: list[str]) -> Iterator[_Setting]:
    inner = generate.make_context(_VERB, given, parent=ctx.parent)
    files, model = origins(generate, _VERB), inner.params["model"]
    card = default_model() if model is None else find_card(model)
    of_card = _of_card(card)
    for name, option in sorted(configurable(generate).items()):
        assert option.name is not None
        value, source = inner.params[option.name], inner.get_parameter_source(option.name)
        if source is ParameterSource.DEFAULT and value is None and option.name in of_card:
            yield _Setting(name=name, value=of_card[option.name], origin=f"card {card.model_id}")
            continue
        origin = {
            ParameterSource.COMMANDLINE: "flag",
            ParameterSource.ENVIRONMENT: variable(option, inner),
            ParameterSource.DEFAULT_MAP: str(files.get(option.name, "")),
        }
        yield _Setting(
            name=name, value=_plain(value), origin=origin.get(source, "built in") if source else ""
        )


def _of_card(card: ModelCard) -> dict[str, object]:
    """What the card decides where nobody says anything, by parameter name."""
    defaults, recipe = card.defaults, card.recipe
    return {
        "model": card.model_id,
        "size": str(defaults.size),
        "frames": defaults.frames,
        "fps": defaults.fps,
        "steps": recipe.steps,
        "guidance": recipe.guidance,
        "negative": defaults.negative_prompt,
    }


def _variables(ctx: click.Context) -> Iterator[_Setting]:
    """What variables set, and `--plugins` in place of one."""
    built_in: dict[str, Any] = {"FV_HOME": str(home()), "FV_PLUGINS": None, "FV_STRICT_PLUGINS": None}
    for name, default in {**built_in, "FV_DEBUG": None, "NO_COLOR": None}.items():
        value = os.environ.get(name)
        flag = name == "FV_PLUGINS" and ctx.find_root().params.get("plugins") is not None
        origin = "flag" if flag else "built in" if value is None else name
        yield _Setting(name=name, value=default if value is None else value, origin=origin)


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return (
            "x".join(map(str, value)) if all(isinstance(one, int) for one in value) and value else list(value)
        )
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _told(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "-"
    return "-" if value is None else str(value) or "''"
