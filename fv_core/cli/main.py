"""The entry point: a table of verbs whose modules load when they are named, and what every error becomes."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

import click
from click.core import ParameterSource

from fv_core import __version__
from fv_core.cli.commands import Group
from fv_core.cli.completion import plugin_list
from fv_core.cli.interrupt import interrupted, uninterrupted
from fv_core.cli.output import Out, Unread, occupy_streams
from fv_core.cli.sources import variable
from fv_core.cli.spelling import meant
from fv_core.cli.stdout import close_stdout
from fv_core.errors import FvError, RequestError, RunError
from fv_core.switch import is_on


class Verb(NamedTuple):
    """Where a verb's command is (the attribute of its name) and its line in `fv --help`."""

    module: str
    help: str


VERBS: Final = {
    "generate": Verb("fv_core.cli.generate", "Make clips from PROMPT and print their paths."),
    "models": Verb("fv_core.cli.models", "List the installed models, or show one."),
    "plugins": Verb(
        "fv_core.cli.plugins", "List the installed plugins, show one, write a new one, or check one's source."
    ),
    "validate": Verb("fv_core.cli.validate", "Check cards against every load-time rule."),
    "weights": Verb("fv_core.cli.weights", "Fetch, list, verify and find model weights."),
    "parity": Verb(
        "fv_core.cli.parity", "Measure models against their references, run their gates, and certify them."
    ),
    "train": Verb("fv_core.cli.train", "Train what the TOML file CONFIG sets and print the run's folder."),
    "export": Verb(
        "fv_core.cli.export", "Write the model of the training RUN as files for others and print where."
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


class Fv(Group):
    """A group that imports a verb's module when the verb is used, and none for its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = getattr(importlib.import_module(VERBS[cmd_name].module), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def line(self, ctx: click.Context, name: str) -> str:
        return VERBS[name].help


@click.group(cls=Fv, epilog=_EXIT_CODES)
@click.version_option(__version__, message="fv %(version)s", allow_from_autoenv=False)
@click.option(
    "--plugins",
    metavar="NAMES",
    allow_from_autoenv=False,  # FV_PLUGINS is read by the registry, where an empty value has a meaning
    shell_complete=plugin_list,
    help="Only these plugins, with commas between them; '' is none.  [default: FV_PLUGINS, else all]",
)
@click.option("--quiet", "-q", is_flag=True, help="Only results and errors: no progress, no notes.")
@click.option(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    show_default=True,
    help="Colour on stderr; auto is on a terminal unless NO_COLOR is set.",
)
@click.pass_context
def fv(ctx: click.Context, plugins: str | None, quiet: bool, color: str) -> None:
    """Run deployable video models: the weights and the loop that they assume, as one validated card."""
    out = ctx.ensure_object(Out)
    out.quiet, out.color = quiet, color
    is_on("FV_DEBUG")  # refused now rather than beside another error
    ctx.with_resource(out.keeping_stdout())
    if any(name.startswith("FV_") for name in os.environ):
        from fv_core.cli.variables import unknown_variables  # loads every verb's options

        for told in unknown_variables(fv, VERBS):
            out.warning(told)
    if plugins is not None:
        from fv_core.plugins.registry import limited  # only a command that says so looks at plugins here

        ctx.with_resource(limited(plugins, by="--plugins"))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs `fv` with `sys.argv`, or with `arguments`, and leaves the process with its exit code."""
    occupy_streams()
    try:
        code = run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:  # of an impatient user, while the first one was being told
        code = interrupted().entry.exit_code
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left is Python's own leaving
    close_stdout()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """The exit code of `fv` with these arguments; every error has been told."""
    out = Out(arguments)
    try:
        return _run(list(arguments), out)
    except Unread:
        # Nobody reads on. What Python flushes at exit must go somewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        out.unread()
        return 1
    except FvError as error:
        with uninterrupted():
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
    except (FvError, Unread):
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
        name=_variable(error) or "command line",
        rule=_sentence(error),
        remedy=f"`{'fv' if context is None else context.command_path} --help` lists what there is.",
    )


def _sentence(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        name, verb = error.option_name, error.ctx.command
        if error.ctx.parent is not None and name in _flags(fv):
            return (
                f"{name} belongs before the command: fv {name} {error.ctx.command_path.partition(' ')[2]} ..."
            )
        return f"there is no option {name!r}{meant(name, _flags(verb))}"
    return " ".join(error.format_message().split()).removesuffix(".")


def _flags(command: click.Command) -> list[str]:
    return [flag for one in command.params if isinstance(one, click.Option) for flag in one.opts]


def _variable(error: click.ClickException) -> str:
    """The variable that holds a value of the wrong form; "" where none is at fault."""
    if not isinstance(error, click.BadParameter) or error.ctx is None:
        return ""
    option = error.param
    if not isinstance(option, click.Option) or option.name is None:
        return ""
    source = error.ctx.get_parameter_source(option.name)
    return variable(option, error.ctx) if source is ParameterSource.ENVIRONMENT else ""
