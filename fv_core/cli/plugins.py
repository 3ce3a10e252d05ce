"""`fv plugins`: what is installed and what is wrong with it. The listing reads metadata alone and never breaks."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from fv_core.cli import skeleton
from fv_core.cli.commands import Group, json_option
from fv_core.cli.completion import plugin_names
from fv_core.cli.findings import Source, check_source, run_gates
from fv_core.cli.output import Out
from fv_core.errors import FvError
from fv_core.plugins import PluginRecord, PluginState, default_registry


@click.group(cls=Group, invoke_without_command=True)
@click.option(
    "--check", is_flag=True, allow_from_autoenv=False, help="Load every plugin; exit 1 if one does not work."
)
@click.option("--requirements", is_flag=True, allow_from_autoenv=False, help="Print pins for pip.")
@json_option
@click.pass_context
def plugins(ctx: click.Context, check: bool, requirements: bool, as_json: bool) -> None:
    """List the installed plugins, show one, write a new one, or check one's source.

    Without --check nothing is imported: STATE is `discovered`, or what metadata tells against a plugin.
    """
    if ctx.invoked_subcommand is not None:
        return
    out = ctx.ensure_object(Out)
    if requirements and as_json:
        raise click.UsageError(
            "--requirements prints lines for pip, which no document holds; leave out --json."
        )
    records = default_registry().check() if check else default_registry().records()
    if requirements:
        out.lines(*sorted({f"{record.dist}=={record.version}" for record in records}))
    elif as_json:
        out.document({"plugins": [asdict(record) for record in records]})
    else:
        _tell(out, records)
    if check and any(not _is_well(record) for record in records):
        raise click.exceptions.Exit(1)


def _tell(out: Out, records: Sequence[PluginRecord]) -> None:
    header = ("NAME", "DIST", "VERSION", "STATE", "PROVIDES")
    rows = [(one.name, one.dist, one.version, one.state.value, _last(one)) for one in records]
    out.table(header, rows)
    for record in records:
        if record.state.works and record.reason:
            out.warning(f"{'; '.join(record.reason.splitlines())}; {record.remedy}")
        elif not _is_well(record):
            out.notice(f"{record.name}: {record.remedy} `fv plugins show {record.name}` tells more")
    if not records:
        out.notice("no plugin is installed, so there is nothing to run")


def _is_well(record: PluginRecord) -> bool:
    return record.state.works or record.state is PluginState.BLOCKED  # which is left out on purpose


def _last(record: PluginRecord) -> str:
    if not record.state.works:
        first, *more = record.reason.splitlines()
        return f"{record.code}: {first}" + (f" (and {len(more)} more)" if more else "")
    if record.state is PluginState.DISCOVERED:
        return "-"
    return ", ".join(_counts(record)) or "nothing"


def _counts(record: PluginRecord) -> Iterator[str]:
    for kind, number in Counter(offer.kind for offer in record.provides).items():
        off = " (off)" if kind == "interceptor" else ""
        yield f"{number} {kind}{'' if number == 1 else 's'}{off}"


@plugins.command()
@click.argument("name", metavar="NAME", shell_complete=plugin_names)
@json_option
@click.pass_obj
def show(out: Out, name: str, as_json: bool) -> None:
    """Load plugin NAME and show what it brings, or every finding and the traceback of what it raised."""
    registry = default_registry()
    findings = registry.findings(name)
    [record, *others] = [one for one in registry.check() if one.name == name]
    raised = [text for finding in findings if (text := _traceback(finding))]
    if as_json:
        told = [finding.to_json() for finding in findings]
        out.document({"plugin": asdict(record), "findings": told, "traceback": "\n".join(raised) or None})
        return
    out.lines(
        *(line for one in (record, *others) for line in _facts(one)),
        *(line for text in raised for line in text.splitlines()),
    )


def _facts(record: PluginRecord) -> Iterator[str]:
    yield f"{record.name}  {record}, module {record.module}"
    yield f"  location  {record.location}{' (editable)' if record.editable else ''}"
    yield f"  state     {record.state}{f' {record.code}' if record.code else ''}"
    for line in record.reason.splitlines():
        yield f"  reason    {line}"
    if record.remedy:
        yield f"  remedy    {record.remedy}"
    width = max([9, *(len(offer.kind) for offer in record.provides)])
    for offer in record.provides:
        yield f"  {offer.kind:<{width}} {offer.id}"


def _traceback(finding: FvError) -> str:
    cause = finding.__cause__
    return "" if cause is None else "".join(traceback.format_exception(cause)).rstrip()


@plugins.command()
@click.argument("name", metavar="NAME")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option(
    "--kind",
    type=click.Choice(tuple(skeleton.KINDS)),
    default="model",
    show_default=True,
    allow_from_autoenv=False,
    help="What the plugin brings.",
)
@json_option
@click.pass_obj
def new(out: Out, name: str, path: Path | None, kind: str, as_json: bool) -> None:
    """Write a plugin NAME that works and has tests, to begin from, into PATH (by default ./fv-NAME)."""
    skeleton.require_free(name)
    folder = Path(f"fv-{name}") if path is None else path
    files = skeleton.write(kind, name, folder)
    if as_json:
        out.document({"plugin": name, "kind": kind, "path": str(folder), "files": list(map(str, files))})
        return
    out.path(folder)
    out.notice(f"`fv plugins check {folder}` checks it, `pip install -e {folder}` installs it")


@plugins.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--quick", is_flag=True, allow_from_autoenv=False, help="Leave out the gates, which run the models."
)
@json_option
@click.pass_obj
def check(out: Out, path: Path, quick: bool, as_json: bool) -> None:
    """Check the plugin in folder PATH; exit 1 on a finding.

    Loads it, validates its cards, resolves every reference, and puts the cards that need no download through the
    gates of the conformance kit.
    """
    source = check_source(path.resolve())
    gates = [] if quick or source.findings else list(run_gates(source.cards))
    failed = [one for one in gates if one.failed]
    if as_json:
        told: dict[str, object] = {
            "plugins": [asdict(one) for one in source.records],
            "ok": not source.findings and not failed,
            "findings": [finding.to_json() for finding in source.findings],
            "gates": [asdict(one) for one in gates],
        }
        out.document(told)
    else:
        _tell_source(out, source)
        out.lines(*(one.line() for one in gates))
    if source.cards and not (as_json or quick or source.findings or gates):
        out.notice("no gate was run: no card of the plugin works without pulled weights")
    if source.findings or failed:
        raise click.exceptions.Exit(1)


def _tell_source(out: Out, source: Source) -> None:
    for record in source.records:
        brings = ", ".join(_counts(record)) or "nothing"
        out.lines(f"{record.name}: {record}, {record.state}, brings {brings}")
    out.lines(*(line for finding in source.findings for line in finding.lines()))
    if not source.findings:
        out.lines("no findings: it loads, its cards are valid, every reference resolves")
