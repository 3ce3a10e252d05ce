"""Commands that tell which file or variable a bad value came from, and groups of them that tell a misspelt name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click
from click.core import ParameterSource

from fv_core.cli.output import Out
from fv_core.cli.sources import sourced
from fv_core.cli.spelling import meant
from fv_core.errors import FvError

json_option: Final = click.option(
    "--json",
    "as_json",
    is_flag=True,
    is_eager=True,  # so that an error in the other options is told in it
    allow_from_autoenv=False,
    callback=lambda ctx, param, value: _tells(ctx, "as_json", value),
    help="Print one JSON document.",
)
events_option: Final = click.option(
    "--events",
    "as_events",
    is_flag=True,
    is_eager=True,
    allow_from_autoenv=False,
    callback=lambda ctx, param, value: _tells(ctx, "as_events", value),
    help="Print what happens as JSON lines, the result last.",
)


class Helpful(click.Command):
    """A command whose help is a result: stdout is kept for those."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _tell_help
        return option


class Command(Helpful):
    """A command whose errors name the file or variable that the value at fault came from."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FvError as error:
            raise sourced(error, ctx) from error.__cause__


class Group(Helpful, click.Group):
    """A group that suggests names, and whose help tells each command's first sentence whole.

    The options of one that is a command too are of that command: beside another one they are refused.
    """

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        ctx.ensure_object(Out).expect([*given(ctx), *args])
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"there is no command {name!r}{meant(name, known)} (legal: {', '.join(known)})")
        found = super().resolve_command(ctx, args)
        if self.invoke_without_command and not ctx.resilient_parsing:
            for option in given(ctx):
                ctx.fail(_misplaced(option, ctx, found[1]))
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.line(ctx, name)) for name in self.list_commands(ctx)])

    def line(self, ctx: click.Context, name: str) -> str:
        """What the group's help tells of the command `name`."""
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(limit=1000)


def given(ctx: click.Context) -> Iterator[str]:
    """The options of this command that the command line gives, by their longest name."""
    for one in ctx.command.params:
        flag = isinstance(one, click.Option) and one.name is not None
        if flag and ctx.get_parameter_source(str(one.name)) is ParameterSource.COMMANDLINE:
            yield max(one.opts, key=len)


def _misplaced(option: str, ctx: click.Context, command: click.Command | None) -> str:
    own = [flag for one in command.params for flag in one.opts] if command is not None else []
    path, name = ctx.command_path, "" if command is None else command.name
    if option in own:
        return f"{option} belongs after the command: {path} {name} ... {option}"
    return f"{option} belongs to `{path}` alone; `{path} {name}` has no such option"


def _tells(ctx: click.Context, form: str, value: bool) -> bool:
    setattr(ctx.ensure_object(Out), form, value)
    return value


def _tell_help(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.ensure_object(Out).lines(*ctx.get_help().splitlines())
        ctx.exit()
