"""What shows nothing is no prompt, however it is written; what shows anything is one."""

from __future__ import annotations

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fv_core.request import is_visible, shows_something

BLANK = [
    "", " \t\n", "\u00a0", "\u200b\u200d\ufeff", "\u2028", "\u00ad", "\u061c", "\u3164", "\u115f\u1160", "\uffa0",
    "\u2800", "\ufe0f", "\u034f", "\u17b4", "\U000e0001", "\U000e0100", "\U0001d173", "&nbsp;", "&nbsp",
    "&#160;", "&#xA0;", "&amp;nbsp;", "&amp;amp;#8203;", " &ensp;&emsp;&thinsp; ",
    "&#38;nbsp;", "&NoBreak;", "&Tab;&NewLine;", "&shy;",
]  # fmt: skip
SHOWN = [
    "a",
    ".",
    "é",
    "東",
    "🎈",
    "\u0301",
    "&",
    "&nbsp;x",
    "&amp;",
    "&lt;",
    "&unknown;",
    "\ue000",
    "\ufffc",
]


@pytest.mark.parametrize("text", BLANK, ids=ascii)
def test_a_blank_shows_nothing(text: str) -> None:
    assert not shows_something(text)
    assert shows_something(f"{text}x")


@pytest.mark.parametrize("text", SHOWN, ids=ascii)
def test_anything_else_shows_something(text: str) -> None:
    assert shows_something(text)


@given(st.text(max_size=8), st.integers(0, 3))
def test_escaping_decides_nothing(text: str, times: int) -> None:
    told = text
    for _ in range(times):
        told = html.escape(told)
    assert shows_something(told) is shows_something(text)


@given(st.text(alphabet=st.characters(exclude_characters="&"), max_size=8))
def test_without_references_each_character_speaks_for_itself(text: str) -> None:
    assert shows_something(text) is any(map(is_visible, text))
