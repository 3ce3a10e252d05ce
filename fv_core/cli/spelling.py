"""What a misspelt word was meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def meant(word: str, known: Iterable[str]) -> str:
    """`; did you mean A or B?`: the known words that begin so, else those that look alike; "" where none does."""
    listed = list(known)
    close = [one for one in listed if len(word.strip("-")) > 1 and one.startswith(word)]
    close = close or get_close_matches(word, listed, n=2, cutoff=0.65)
    return f"; did you mean {' or '.join(close)}?" if close else ""
