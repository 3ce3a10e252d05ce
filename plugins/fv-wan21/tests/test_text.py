"""Prompts are cleaned exactly as the reference cleans them, with ftfy at work in both."""

from __future__ import annotations

import pytest
from diffusers.pipelines.wan.pipeline_wan import is_ftfy_available, prompt_clean
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fv_wan21.text import clean

PIECES = ["&amp;", "&lt;b&gt;", "&amp;amp;lt;", "&#8364;", "&nbsp;", "<", "\u00e2\u201a\u00ac", "\u00c3\u00bc", "\u0301", "\u200d", "\ufeff", "\u3000", "\x1b[31m", "\r\n", "\t", " ", "a", "\uff21", "\u5708", "\U0001f534", "\ufb01", "\u2019", "&"]  # fmt: skip  # noqa: E501


def test_reference_uses_ftfy_here() -> None:
    assert is_ftfy_available()


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
@example("")
@example("  a\u00a0 b  ")
def test_any_text_is_cleaned_as_by_the_reference(text: str) -> None:
    assert clean(text) == prompt_clean(text)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("  a \t\n b ", "a b"),
        ("&amp;lt;red&amp;gt;", "<red>"),
        ("<b> &amp;lt;red", "<b> <red"),  # where ftfy sees a tag it leaves entities to us
        ("sch\u00c3\u00b6n", "sch\u00f6n"),
        ("\u201cquoted\u201d", '"quoted"'),
        ("\U0001f534 a\u0308", "\U0001f534 \u00e4"),
    ],
)
def test_cleaning_repairs_unescapes_and_collapses(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
