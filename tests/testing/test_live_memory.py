"""What is counted alive is what is kept, and nothing of the module itself."""

from __future__ import annotations

import torch
from torch import nn

from fv_core.testing.live_memory import LivePeak


def test_counting_tells_kept_from_dropped_tensors() -> None:
    module = nn.Linear(4, 4)
    with LivePeak(module) as dropped:
        for _ in range(3):
            once = torch.empty(1000)
            del once
    with LivePeak(module) as kept:
        _ = [torch.empty(1000) for _ in range(3)]
    assert (dropped.peak, kept.peak) == (4000, 12000)
