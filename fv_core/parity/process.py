"""The state of this process that no run may change, by name; values are told only where nothing private is in them."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator, Mapping

import numpy as np
import torch


def process_state() -> dict[str, str]:
    """Generators, torch's settings, the working folder and the environment, each as text that changes with it."""
    told = {
        "torch's generator": _hash(torch.get_rng_state().tolist()),
        "numpy's generator": _hash(np.random.get_state(legacy=False)),
        "random's generator": _hash(random.getstate()),
        "the number of threads": str(torch.get_num_threads()),
        "the default dtype": str(torch.get_default_dtype()),
        "the default device": str(torch.get_default_device()),
        "the gradient mode": str(torch.is_grad_enabled()),
        "the precision of products": torch.get_float32_matmul_precision(),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "the working folder": os.getcwd(),
    }
    return told | {f"environment variable {name}": _hash(value) for name, value in os.environ.items()}


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each part of the state that a run has changed."""
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            yield f"a run changed {name}"


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()
