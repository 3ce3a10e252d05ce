"""`fv parity`: measure a card against its reference, run its gates, and certify what was measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from fv_core.cli.commands import Group, events_option, json_option
from fv_core.cli.completion import model_ids
from fv_core.cli.output import Out

_once = partial(click.option, allow_from_autoenv=False)
_path = click.Path(path_type=Path)
_MODEL = click.argument("model_id", metavar="ID", shell_complete=model_ids)


def _runs(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `parity_run.Run`."""
    for option in (
        events_option,
        json_option,
        _once(
            "--weights", type=_path, metavar="PATH", help="A folder of weights in place of the pulled ones."
        ),
        _once(
            "--dtype", default="auto", metavar="NAME", help="Precision; auto is the card's for the device."
        ),
        _once(
            "--device",
            default="auto",
            envvar="FV_DEVICE",
            metavar="NAME",
            help="auto, cuda, cuda:N, mps or cpu.",
        ),
    ):
        command = option(command)
    return command


@click.group(cls=Group)
def parity() -> None:
    """Measure models against their references, run their gates, and certify them."""


@parity.command()
@_MODEL
@_once("--rung", "rungs", multiple=True, metavar="RUNG", help="C0 or C1.  [default: what the card claims]")
@_once("--record", type=_path, metavar="FILE", help="Only record a run of fv, for a later --against.")
@_once("--against", type=_path, metavar="FILE", help="Compare with a recording in place of the reference.")
@_runs
@click.pass_obj
def check(
    out: Out, /, model_id: str, rungs: tuple[str, ...], record: Path | None, against: Path | None, **run: Any
) -> None:
    """Compare model ID with its reference, tap by tap; exit 1 and tell the first divergence where there is one."""
    if record is not None and (against is not None or rungs):
        raise click.UsageError("--record compares nothing; it goes with neither --against nor --rung.")
    from fv_core.cli import parity_check  # what it needs is not needed for help
    from fv_core.cli.parity_run import Run

    if record is not None:
        parity_check.record_run(model_id, record, Run(**run), out)
    elif against is not None:
        parity_check.check_against(model_id, against, rungs, Run(**run), out)
    else:
        parity_check.check_reference(model_id, rungs, Run(**run), out)


@parity.command()
@click.argument("model_id", metavar="ID...", nargs=-1, required=True, shell_complete=model_ids)
@_runs
@click.pass_obj
def gate(out: Out, /, model_id: tuple[str, ...], **run: Any) -> None:
    """Run every gate on models ID: determinism, interleave, resume, cancel, leak, ...; exit 1 where one fails."""
    from fv_core.cli.parity_gate import run_gates
    from fv_core.cli.parity_run import Run

    run_gates(model_id, Run(**run), out)


@parity.command()
@_MODEL
@_once("--into", type=_path, metavar="DIR", help="A ledger to write to.  [default: FV_HOME/certificates]")
@_runs
@click.pass_obj
def certify(out: Out, /, model_id: str, into: Path | None, **run: Any) -> None:
    """Measure every rung that model ID claims and write a certificate of each; exit 1 where one fails."""
    from fv_core.cli.parity_certify import certify_model
    from fv_core.cli.parity_run import Run

    certify_model(model_id, into, Run(**run), out)
