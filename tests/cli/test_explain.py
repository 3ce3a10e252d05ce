"""`fv explain` tells what the registry says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fv_core.errors import CODES

Fv = Callable[..., Any]


@pytest.mark.parametrize("code", CODES)
def test_explain_tells_title_exit_code_and_explanation(fv: Fv, code: str) -> None:
    told = fv("explain", code.lower())
    entry = CODES[code]
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith(
        f"{code}: {entry.title}\nexit code {entry.exit_code}, HTTP {entry.http_status}\n\n"
    )
    assert " ".join(told.out.split()).endswith(" ".join(entry.explanation.split()))
    assert max(map(len, told.out.splitlines())) <= 100


def test_explain_alone_lists_every_code_in_order(fv: Fv) -> None:
    header, *rows = fv("explain").out.splitlines()
    assert header.split() == ["CODE", "EXIT", "TITLE"]
    assert [row.split()[0] for row in rows] == sorted(CODES)


def test_explain_prints_json(fv: Fv) -> None:
    assert fv("explain", "FV302", "--json").json["exit_code"] == 2
    assert [one["code"] for one in fv("explain", "--json").json["codes"]] == sorted(CODES)


@pytest.mark.parametrize("code", ["FV999", "302", "", "E0001"])
def test_an_unknown_code_is_refused(fv: Fv, code: str) -> None:
    told = fv("explain", code)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith(f"error[FV317]: error code {code!r}: is not one of fv's\n")
