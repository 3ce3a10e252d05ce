"""`fv weights`: fetch, list, verify and find the checkpoints of the installed cards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from fv_core.card import CheckpointManifest, ModelCard
from fv_core.cli.commands import Group, json_option
from fv_core.cli.completion import model_ids
from fv_core.cli.output import Out, human_bytes
from fv_core.cli.presence import Presence, presence
from fv_core.errors import WeightsError
from fv_core.plugins import all_cards, find_card
from fv_core.weights.store import checkpoint_of, locate, needed_folders, size_of
from fv_core.weights.store import verify as find_problems

if TYPE_CHECKING:
    from fv_core.weights.pull_plan import PullPlan

_MODEL = click.argument("model_id", metavar="ID", shell_complete=model_ids)


@click.group(cls=Group)
def weights() -> None:
    """Fetch, list, verify and find model weights."""


@weights.command()
@_MODEL
@click.option("--yes", "-y", is_flag=True, help="Fetch without asking; needed where there is no terminal.")
@click.option(
    "--check", is_flag=True, help="Compare the content of files that are here, not only their sizes."
)
@json_option
@click.pass_obj
def pull(out: Out, model_id: str, yes: bool, check: bool, as_json: bool) -> None:
    """Fetch the weights of model ID into the hub's cache; tells the size first, and asks.

    An interrupted pull goes on where it stopped. HF_HOME, HF_TOKEN and HF_HUB_OFFLINE are honoured.
    """
    # These load the hub's client, which the other verbs need later or not at all.
    from fv_core.weights.pull import pull as fetch
    from fv_core.weights.pull_plan import plan_pull

    card = find_card(model_id)
    plan = plan_pull(card, check=check)
    out.notice(_summary(plan))
    missing = plan.bytes_total - plan.bytes_here
    if missing and not yes:
        _ask(f"Fetch {human_bytes(missing)} of {plan.repo}?")
    with _progress(out, plan) as report:
        folder = fetch(card, plan, report)
    if as_json:
        facts = {"model": model_id, "repo": plan.repo, "revision": plan.revision, "bytes": plan.bytes_total}
        out.document({**facts, "path": str(folder)})
        return
    out.path(folder)


@weights.command("list")
@json_option
@click.pass_obj
def list_weights(out: Out, as_json: bool) -> None:
    """List the models whose weights can be pulled, and which of them are here."""
    places = [_place(card, card.checkpoint) for card in all_cards() if card.checkpoint is not None]
    if as_json:
        out.document({"weights": [place._asdict() for place in places]})
        return
    out.table(("MODEL", "REPOSITORY", "REVISION", "SIZE", "WHERE"), [_cells(place) for place in places])
    if not places:
        out.notice("no installed model has weights to pull")
    for place in places:
        if place.presence is Presence.PARTLY_HERE:
            out.notice(
                f"{place.model}: {place.reason}; `fv weights pull {place.model}` fetches what is missing"
            )


@weights.command()
@_MODEL
@click.option("--weights", "folder", type=click.Path(path_type=Path), help="Verify this folder instead.")
@json_option
@click.pass_obj
def verify(out: Out, model_id: str, folder: Path | None, as_json: bool) -> None:
    """Check that the files of model ID are whole; exit 1 and name each that is missing, truncated or altered.

    Pulled files are compared with the digests that the hub stated. Whether tensors are those of the model is
    checked when it loads.
    """
    problems = find_problems(find_card(model_id), folder)
    if as_json:
        found = [{"file": problem.file, "reason": problem.reason} for problem in problems]
        out.document({"model": model_id, "ok": not problems, "problems": found})
    else:
        told = [f"{problem.file}: {problem.reason}" for problem in problems]
        out.lines(*(told or [f"{model_id}: all files are whole"]))
    if problems:
        if folder is None:
            out.notice(f"`fv weights pull {model_id} --check` fetches what is wrong again")
        raise click.exceptions.Exit(1)


@weights.command()
@_MODEL
@json_option
@click.pass_obj
def where(out: Out, model_id: str, as_json: bool) -> None:
    """Print the folder that holds the weights of model ID."""
    card = find_card(model_id)
    checkpoint_of(card)
    folder = locate(card, None)
    assert folder is not None  # the card has a checkpoint
    if as_json:
        out.document({"model": model_id, "path": str(folder)})
        return
    out.path(folder)


@weights.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("folder", metavar="OUT", type=click.Path(path_type=Path))
@click.option("--model", "model_id", metavar="ID", shell_complete=model_ids, help="Whose weights they are.")
@click.option(
    "--others",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Weights whose other subfolders are linked.",
)
@json_option
@click.pass_obj
def convert(
    out: Out, file: Path, folder: Path, model_id: str | None, others: Path | None, as_json: bool
) -> None:
    """Make folder OUT of FILE, a pickle that the weights of a model were published as.

    Without --model they are those of the one installed model whose published weights have a converter. OUT is then
    given to --weights of the other commands. --others names a folder with what FILE lacks, such as text encoders.
    """
    card = _convertible() if model_id is None else find_card(model_id)
    from fv_core.runtime.convert import convert as make  # after the cheap refusals: loads torch

    made = make(card, file, folder, others=others)
    absent = [name for name in needed_folders(card) if not (made / name).is_dir()]
    if as_json:
        out.document({"model": card.model_id, "path": str(made), "missing": absent})
        return
    out.path(made)
    if absent:
        out.notice(f"{card.model_id} needs {', '.join(absent)} beside it; --others PATH links them")


def _convertible() -> ModelCard:
    """The one published model that has a converter."""
    cards = [card for card in all_cards() if card.checkpoint is not None]
    found = [card for card in cards if any(spec.convert for spec in card.components.values())]
    if len(found) != 1:
        ids = ", ".join(card.model_id for card in found)
        raise click.UsageError(f"--model ID is needed: {ids or 'no installed model'} has a converter")
    return found[0]


class _Place(NamedTuple):
    model: str
    repo: str
    revision: str | None
    bytes: int | None
    path: str | None
    presence: Presence
    reason: str | None


def _place(card: ModelCard, checkpoint: CheckpointManifest) -> _Place:
    try:
        folder = locate(card, None)
    except WeightsError as error:
        absent = presence(card)
        return _Place(card.model_id, checkpoint.repo, checkpoint.revision, None, None, absent, error.rule)
    assert folder is not None  # the card has a checkpoint
    size = size_of(card, folder)
    return _Place(card.model_id, checkpoint.repo, folder.name, size, str(folder), Presence.HERE, None)


def _cells(place: _Place) -> tuple[str, str, str, str, str]:
    size = "-" if place.bytes is None else human_bytes(place.bytes)
    return place.model, place.repo, place.revision or "newest", size, place.path or place.presence


def _summary(plan: PullPlan) -> str:
    missing = plan.bytes_total - plan.bytes_here
    return (
        f"{plan.repo} at {plan.revision}: {len(plan.files)} files, {human_bytes(plan.bytes_total)}; "
        f"{human_bytes(plan.bytes_here)} are here, "
        + (f"{human_bytes(missing)} to fetch" if missing else "nothing to fetch")
    )


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on; --yes fetches without asking.")
    click.confirm(question, abort=True, err=True)


@contextmanager
def _progress(out: Out, plan: PullPlan) -> Iterator[Callable[[int], None]]:
    if not out.draws_progress:
        yield lambda done: None
        return
    # Imported late: only a transfer on a terminal draws.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True, no_color=not out.colors_terminal or None)
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as bar:
        task = bar.add_task("", total=plan.bytes_total, completed=plan.bytes_here)
        yield lambda done: bar.update(task, completed=done)
