"""Cleans a prompt exactly as the reference does before it is tokenised.

Reference: diffusers 0.42.1, `pipelines.wan.pipeline_wan.prompt_clean`. ftfy is a hard dependency: without it the
reference silently skips the repair and gives other embeddings.
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
