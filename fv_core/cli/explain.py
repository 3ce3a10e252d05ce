"""`fv explain`: what an error code means."""

from __future__ import annotations

import textwrap

import click

from fv_core.cli.commands import Command, json_option
from fv_core.cli.completion import codes
from fv_core.cli.output import Out
from fv_core.errors import CODES, ErrorCode, RequestError

_WIDTH = 100


@click.command(cls=Command)
@click.argument("code", required=False, shell_complete=codes)
@json_option
@click.pass_obj
def explain(out: Out, code: str | None, as_json: bool) -> None:
    """Explain error CODE at length; without CODE, list all of them."""
    if code is None:
        _list(out, as_json)
        return
    entry = _entry(code)
    if as_json:
        out.document(_facts(entry))
        return
    out.lines(f"{entry.code}: {entry.title}", f"exit code {entry.exit_code}, HTTP {entry.http_status}", "")
    out.lines(*textwrap.wrap(entry.explanation, _WIDTH, break_on_hyphens=False))


def _list(out: Out, as_json: bool) -> None:
    entries = [CODES[code] for code in sorted(CODES)]
    if as_json:
        out.document({"codes": [_facts(entry) for entry in entries]})
        return
    out.table(
        ("CODE", "EXIT", "TITLE"), [(entry.code, str(entry.exit_code), entry.title) for entry in entries]
    )


def _entry(code: str) -> ErrorCode:
    """Raises:
    RequestError: FV317, there is no such code.
    """
    entry = CODES.get(code.upper())
    if entry is None:
        raise RequestError(
            "FV317",
            name="error code",
            value=code,
            rule="is not one of fv's",
            remedy="`fv explain` without a code lists all of them.",
        )
    return entry


def _facts(entry: ErrorCode) -> dict[str, object]:
    return {
        "code": entry.code,
        "title": entry.title,
        "exit_code": entry.exit_code,
        "http_status": entry.http_status,
        "type": entry.wire_code,
        "explanation": entry.explanation,
    }
