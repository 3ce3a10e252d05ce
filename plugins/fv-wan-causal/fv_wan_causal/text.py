"""Cleans a prompt exactly as the reference does before it is tokenised.

Reference: Wan 2.1, `modules.tokenizers`, cleaning "whitespace". ftfy is a hard dependency: text that it would repair
gives other embeddings without it.
"""

from __future__ import annotations

import html

import ftfy
import regex


def clean(prompt: str) -> str:
    """Repairs mojibake, unescapes HTML entities twice, collapses white space."""
    repaired = html.unescape(html.unescape(ftfy.fix_text(prompt))).strip()
    collapsed: str = regex.sub(r"\s+", " ", repaired)
    return collapsed.strip()
