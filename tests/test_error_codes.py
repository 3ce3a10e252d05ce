"""The registry of error codes and the source agree: what is raised is registered, what is registered is raised."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from fv_core.errors import CODES

ROOT = Path(__file__).parents[1]
REGISTRY = ROOT / "fv_core" / "errors" / "codes"
EXIT_CODES = {"1": {2, 3}, "2": {2, 3}, "3": {2}, "4": {4}, "5": {1, 130}, "6": {2, 3}, "7": {1, 2}}


def sources() -> Iterator[Path]:
    for package in (ROOT / "fv_core", *ROOT.glob("plugins/*/fv_*")):
        yield from (path for path in package.rglob("*.py") if path.parent != REGISTRY)


def codes_of_calls(source: str) -> list[str]:
    """The codes that calls get as their first argument: how every error is made."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args]
    first = [call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)]
    return [text for text in first if isinstance(text, str) and text.startswith("FV") and text[2:].isdigit()]


@pytest.fixture(scope="module")
def raised() -> dict[str, list[str]]:
    """Code -> the files that raise it."""
    found = defaultdict(list)
    for path in sources():
        for code in codes_of_calls(path.read_text()):
            found[code].append(str(path.relative_to(ROOT)))
    return found


def test_every_raised_code_is_registered(raised: dict[str, list[str]]) -> None:
    assert {code: files for code, files in raised.items() if code not in CODES} == {}


def test_every_registered_code_is_raised(raised: dict[str, list[str]]) -> None:
    assert sorted(CODES.keys() - raised.keys()) == []


def test_the_scan_sees_only_codes_of_calls() -> None:
    source = 'raise RequestError("FV302", name="x")\nx = "FV303"\nraise wrong("FVabc")\nf()\n"""FV304"""\n'
    assert codes_of_calls(source) == ["FV302"]


@pytest.mark.parametrize("code", CODES)
def test_a_row_fits_its_group(code: str) -> None:
    entry = CODES[code]
    assert entry.code == code
    assert entry.exit_code in EXIT_CODES[code[2]]
    assert 400 <= entry.http_status < 600
    assert (entry.http_status < 500) == (entry.exit_code in (2, 130) or entry.http_status in (409, 429))
    assert entry.wire_code.replace("_", "").isalpha()
    assert not entry.title.endswith(".")
    assert entry.explanation.endswith(".")


def test_fv_knows_no_code_twice() -> None:
    codes = [code for path in REGISTRY.glob("*.py") for code in codes_of_calls(path.read_text())]
    assert len(codes) == len(set(codes)) == len(CODES)
