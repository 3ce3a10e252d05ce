"""What a job was accepted on beside its request: a restart changes nothing of it."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from typing import Self

from fv_core import codec
from fv_core.request import Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Times are Unix seconds, since no other clock goes on across a restart.

    Args:
        accepted: when the job was taken on; jobs are taken up again in this order.
        deadline: when it is cancelled if it is not done; None: never.
    """

    priority: Priority
    accepted: float
    deadline: float | None = None

    @classmethod
    def now(cls, priority: Priority, deadline_s: float | None) -> Self:
        """Of a job that is taken on now; `deadline_s` counts from now."""
        accepted = time.time()
        return cls(
            priority=priority,
            accepted=accepted,
            deadline=None if deadline_s is None else accepted + deadline_s,
        )

    def monotonic_deadline(self) -> float | None:
        """The deadline in seconds of this process's `time.monotonic`."""
        return None if self.deadline is None else time.monotonic() + self.deadline - time.time()

    def to_json(self) -> bytes:
        return json.dumps(codec.encode(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Raises:
        ValueError: it is not what `to_json` writes.
        """
        told = codec.decode(cls, json.loads(text))
        if not all(math.isfinite(one) for one in (told.accepted, told.deadline or 0.0)):
            raise ValueError(f"accepted is {told.accepted} and deadline {told.deadline}, which are no times")
        return told
