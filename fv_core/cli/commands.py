"""Commands that tell which file or variable a bad value came from, and groups of them that tell a misspelt name."""

from __future__ import annotations

from typing import Any

import click

from fv_core.cli.sources import sourced
from fv_core.cli.spelling import meant
from fv_core.errors import FvError


class Command(click.Command):
    """A command whose errors name the file or variable that the value at fault came from."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FvError as error:
            raise sourced(error, ctx) from error.__cause__


class Group(click.Group):
    """A group that suggests names, and whose help tells each command's first sentence whole."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"there is no command {name!r}{meant(name, known)} (legal: {', '.join(known)})")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.line(ctx, name)) for name in self.list_commands(ctx)])

    def line(self, ctx: click.Context, name: str) -> str:
        """What the group's help tells of the command `name`."""
        command = self.get_command(ctx, name)
        return "" if command is None else command.get_short_help_str(limit=1000)
