"""The page of all error codes: `python -m fv_core.errors.document > docs/errors.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from fv_core.errors.codes import CODES, ErrorCode

_INTRODUCTION = """\
# Error codes

Generated from `fv_core/errors/codes/` by `python -m fv_core.errors.document > docs/errors.md`. `fv explain CODE`
prints the same.

The command line prints `error[CODE]: what is wrong` and `hint: what to do` on stderr, and with `--json` one document
`{"error": {"code", "type", "message", "hint", "details"}}` on stdout. Exit codes: 0 ok, 1 the work failed, 2 usage,
3 plugin, card or weights cannot be loaded, 4 resources refused, 130 cancelled."""

_GROUPS = {
    "1": "Plugins",
    "2": "Cards and weights",
    "3": "Requests",
    "4": "Memory, disk and outputs",
    "5": "Runs",
    "6": "Parity",
    "7": "Training",
}


def document() -> str:
    """The page as Markdown, ending with a newline."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    group = ""
    for code in sorted(CODES):
        if code[2] != group:
            group = code[2]
            yield f"\n## {_GROUPS[group]}"
        yield from _entry(CODES[code])


def _entry(entry: ErrorCode) -> Iterator[str]:
    yield f"\n### {entry.code}: {entry.title}\n"
    yield f"Exit code {entry.exit_code}, HTTP {entry.http_status}, `{entry.wire_code}`.\n"
    yield entry.explanation


if __name__ == "__main__":
    sys.stdout.write(document())
