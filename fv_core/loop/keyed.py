"""Random numbers by key: a counter-based stream for each draw, with no generator to carry from one to the next.

Independent of the order of draws, of how work is split, and of resuming. Philox 4x64 (Salmon et al. 2011, "Parallel
random numbers: as easy as 1, 2, 3") as numpy has it; the numbers are those of no torch generator.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

_HALF = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawKey:
    """What a draw is for; equal keys give equal numbers, and no two keys share any.

    Args:
        seed: of the run or request, 0 <= seed < 2^64.
        purpose: "sigma", "noise", "shuffle": different draws of one sample have different purposes.
        step: of the run. sample: its place among all samples of the step, on whichever rank. Both below 2^64.
        chunk: of the clip. denoise: denoising step. Both below 2^32.
    """

    seed: int
    purpose: str
    step: int = 0
    sample: int = 0
    chunk: int = 0
    denoise: int = 0


def keyed_normal(key: DrawKey, shape: tuple[int, ...]) -> Tensor:
    """Standard normal numbers, float32 on the CPU."""
    return torch.from_numpy(_generator(key).standard_normal(math.prod(shape), dtype=np.float32)).view(shape)


def keyed_uniform(key: DrawKey) -> float:
    """A number in [0, 1)."""
    return float(_generator(key).random())


def keyed_permutation(key: DrawKey, count: int) -> list[int]:
    """0 to count - 1 in random order."""
    order: list[int] = _generator(key).permutation(count).tolist()
    return order


def _generator(key: DrawKey) -> np.random.Generator:
    # The lowest word counts what is drawn; the others hold the key, so streams of different keys never meet.
    counter = np.array([0, key.step, key.sample, key.chunk * _HALF + key.denoise], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(counter=counter, key=_philox_key(key.seed, key.purpose)))


@lru_cache(maxsize=256)
def _philox_key(seed: int, purpose: str) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest()
    return np.frombuffer(digest, dtype=np.uint64)
