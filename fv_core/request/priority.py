"""How urgent a request is."""

from __future__ import annotations

from enum import StrEnum


class Priority(StrEnum):
    """interactive: someone waits for it. standard: the default. batch: overnight work, which gives way."""

    INTERACTIVE = "interactive"
    STANDARD = "standard"
    BATCH = "batch"
