"""The global generators of Python, numpy and torch: nothing here draws from them, but a plugin's method might."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import torch


def generator_states() -> dict[str, Any]:
    """Their states as plain JSON."""
    version, words, gauss = random.getstate()
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "python": [version, list(words), gauss],
        "numpy": [name, np.asarray(keys).tolist(), *rest],
        "torch": base64.b64encode(torch.get_rng_state().numpy().tobytes()).decode(),
    }


def restore_generators(states: dict[str, Any]) -> None:
    """Takes back what `generator_states` gave."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(tuple(states["numpy"]))
    torch.set_rng_state(torch.frombuffer(bytearray(base64.b64decode(states["torch"])), dtype=torch.uint8))
