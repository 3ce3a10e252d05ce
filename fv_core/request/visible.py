"""Whether a text shows anything: characters that draw nothing, and HTML references to them, are not a prompt."""

from __future__ import annotations

import html
import unicodedata
from typing import Final

_CATEGORIES: Final = ("Cc", "Cf", "Zl", "Zp", "Zs")
_BLANKS: Final = frozenset(
    code
    for first, last in (
        (0x034F, 0x034F),  # combining grapheme joiner
        (0x115F, 0x1160),  # Hangul fillers
        (0x17B4, 0x17B5),  # Khmer inherent vowels
        (0x180B, 0x180F),  # Mongolian variation selectors
        (0x2065, 0x2065),  # reserved, ignorable by default
        (0x2800, 0x2800),  # Braille pattern without dots
        (0x3164, 0x3164),  # Hangul filler
        (0xFE00, 0xFE0F),  # variation selectors
        (0xFFA0, 0xFFA0),  # halfwidth Hangul filler
        (0xFFF0, 0xFFF8),  # reserved, ignorable by default
        (0x1BCA0, 0x1BCA3),  # shorthand format controls
        (0x1D173, 0x1D17A),  # musical format controls
        (0xE0000, 0xE0FFF),  # tags and variation selectors
    )
    for code in range(first, last + 1)
)
"""What Unicode calls ignorable by default and Python's categories call a letter, a mark or a symbol."""


_RESOLVED: Final = 4
"""References within references deeper than this are text for every encoder."""


def is_visible(character: str) -> bool:
    """Whether it draws anything by itself."""
    return ord(character) not in _BLANKS and unicodedata.category(character) not in _CATEGORIES


def shows_something(text: str) -> bool:
    """Whether a character is visible once HTML references are resolved, as text encoders do once or twice."""
    for _ in range(_RESOLVED):
        text = html.unescape(text)
    return any(map(is_visible, text))
