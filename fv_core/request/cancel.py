"""Cancelling: a flag that may be set from any thread and is read before every component call."""

from __future__ import annotations

from threading import Event

from fv_core.errors import Cancelled


class CancelScope:
    """Cancels the requests that were started with it. Cancelling twice is the same as once."""

    def __init__(self) -> None:
        self._event = Event()

    def cancel(self) -> None:
        self._event.set()

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def check(self, request_id: str) -> None:
        """Raises:
        Cancelled: the scope has been cancelled (FV510).
        """
        if self._event.is_set():
            raise Cancelled(
                "FV510",
                name=f"request {request_id}",
                rule="was cancelled by its caller",
                remedy="Nothing is left to do; run it again to get its result.",
            )
