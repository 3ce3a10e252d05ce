"""Cancelling: a flag that any thread may set."""

from __future__ import annotations

import threading

import pytest

from fv_core.errors import Cancelled
from fv_core.request import CancelScope


def test_check_raises_only_once_cancelled() -> None:
    scope = CancelScope()
    scope.check("r1")
    assert not scope.cancelled
    scope.cancel()
    scope.cancel()
    assert scope.cancelled
    with pytest.raises(Cancelled) as caught:
        scope.check("r1")
    assert caught.value.code == "FV510"
    assert "r1" in caught.value.message


def test_cancel_is_seen_from_another_thread() -> None:
    scope = CancelScope()
    thread = threading.Thread(target=scope.cancel)
    thread.start()
    thread.join()
    assert scope.cancelled
