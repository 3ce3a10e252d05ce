"""The entry point: a table of verbs whose modules load when they are named, and what every error becomes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple, NoReturn

import click

from fv_core import __version__
from fv_core.cli.interrupt import interrupted
from fv_core.cli.output import Out
from fv_core.errors import FvError, RequestError, RunError


class Verb(NamedTuple):
    """Where a verb's command is (the attribute of its name) and its line in `fv --help`."""

    module: str
    help: str


VERBS: Final = {
    "generate": Verb("fv_core.cli.generate", "Make clips from PROMPT and print their paths."),
    "models": Verb("fv_core.cli.models", "List the installed models, or show one."),
    "plugins": Verb("fv_core.cli.plugins", "List the installed plugins, show one, or check one's source."),
    "validate": Verb("fv_core.cli.validate", "Check cards against every load-time rule."),
    "weights": Verb("fv_core.cli.weights", "Fetch, list, verify and find model weights."),
    "parity": Verb(
        "fv_core.cli.parity", "Measure models against their references, run their gates, and certify them."
    ),
    "config": Verb("fv_core.cli.config", "Show what `fv generate` would use, and from where."),
    "env": Verb("fv_core.cli.env", "Show versions, devices, paths and plugins, for reports."),
    "explain": Verb("fv_core.cli.explain", "Explain error CODE at length; without CODE, list all of them."),
}

_EXIT_CODES: Final = """\b
Exit codes:
  0    ok
  1    the work failed, or a check found problems
  2    usage: the request or the command line is not legal
  3    a plugin, card or weights cannot be loaded
  4    memory, disk or another resource is refused
  130  cancelled
"""


class Fv(click.Group):
    """A group that imports a verb's module when the verb is used, and none for its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = getattr(importlib.import_module(VERBS[cmd_name].module), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-") and not ctx.resilient_parsing:
            close = get_close_matches(name, VERBS, n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            ctx.fail(f"there is no command {name!r}{meant} (legal: {', '.join(VERBS)})")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])


@click.group(cls=Fv, epilog=_EXIT_CODES)
@click.version_option(__version__, message="fv %(version)s", allow_from_autoenv=False)
@click.option("--quiet", "-q", is_flag=True, help="Only results and errors: no progress, no notes.")
@click.option(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    show_default=True,
    help="Colour on stderr; auto is on a terminal unless NO_COLOR is set.",
)
@click.pass_context
def fv(ctx: click.Context, quiet: bool, color: str) -> None:
    """Run deployable video models: the weights and the loop that they assume, as one validated card."""
    out = ctx.ensure_object(Out)
    out.quiet, out.color = quiet, color
    if any(name.startswith("FV_") for name in os.environ):
        from fv_core.cli.variables import unknown_variables  # loads every verb's options

        for told in unknown_variables(fv, VERBS):
            out.warning(told)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs `fv` with `sys.argv`, or with `arguments`, and leaves the process with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """The exit code of `fv` with these arguments; every error has been told."""
    out = Out(as_json="--json" in arguments, as_events="--events" in arguments)
    try:
        return _run(list(arguments), out)
    except BrokenPipeError:
        # Nobody reads on. What Python flushes at exit must go somewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except FvError as error:
        out.error(error)
        return error.entry.exit_code


def _run(arguments: list[str], out: Out) -> int:
    """Raises:
    FvError: whatever failed, as an error of fv's own.
    """
    try:
        # A command's own exit code is what click returns then; commands return nothing.
        return (
            fv.main(arguments, prog_name="fv", standalone_mode=False, obj=out, auto_envvar_prefix="FV") or 0
        )
    except (FvError, BrokenPipeError):
        raise
    except (click.Abort, KeyboardInterrupt) as error:
        raise interrupted() from error
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        raise _usage(error) from error
    except Exception as error:
        raise RunError(
            "FV599",
            name="fv",
            rule=f"failed in a way that it did not foresee: {type(error).__name__}: {error}",
            remedy="FV_DEBUG=1 shows the traceback; `fv env` tells what a report needs.",
        ) from error


def _usage(error: click.ClickException) -> RequestError:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return RequestError(
        "FV300",
        name="command line",
        rule=" ".join(error.format_message().split()).removesuffix("."),
        remedy=f"`{'fv' if context is None else context.command_path} --help` lists what there is.",
    )
