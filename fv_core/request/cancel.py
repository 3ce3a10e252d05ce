"""Cancelling: a flag that may be set from any thread, or a deadline; read before every component call."""

from __future__ import annotations

import time
from threading import Event

from fv_core.errors import Cancelled


class CancelScope:
    """Cancels the requests that were started with it. Cancelling twice is the same as once.

    Args:
        deadline: when it cancels them by itself, in seconds of `time.monotonic`.
    """

    def __init__(self, *, deadline: float | None = None) -> None:
        self.deadline = deadline
        self._event = Event()

    def cancel(self) -> None:
        self._event.set()

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled, or its deadline has passed."""
        return self._event.is_set() or self._late()

    def check(self, request_id: str) -> None:
        """Raises:
        Cancelled: the scope has been cancelled (FV510), or its deadline has passed (FV512).
        """
        if self._event.is_set():
            raise Cancelled(
                "FV510",
                name=f"request {request_id}",
                rule="was cancelled by its caller",
                remedy="Nothing is left to do; run it again to get its result.",
            )
        if self._late():
            raise Cancelled(
                "FV512",
                name=f"request {request_id}",
                rule="was not done by its deadline",
                remedy="Give it more time, a higher priority, or fewer steps.",
            )

    def _late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline
