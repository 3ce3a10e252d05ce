"""What a run really used: told with every result, in container metadata and in sidecars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fv_core.request.adapter import BoundAdapter
from fv_core.request.request import Numerics, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The numeric environment: equal environments give equal bytes for equal requests.

    `versions` maps library name to version; `instructions` is torch's CPU capability; `processor` is the CPU's model.
    `settings` are torch's switches that choose how a number is computed (matmul precision, attention kernels, ...).
    """

    device: str
    device_name: str
    instructions: str
    threads: int
    platform: str
    versions: Mapping[str, str]
    processor: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The settled values of one finished run. `model_folder`: where a model lies that is a folder, "" for others."""

    model: str
    card_digest: str
    plugin: str
    weights: str
    seed: int
    size: Size
    frames: int
    fps: float
    steps: int
    guidance: float
    sampler: str
    numerics: Numerics
    dtype: str
    params: Mapping[str, float | int | str | bool]
    extensions: tuple[str, ...]
    environment: Environment
    environment_hash: str
    seconds: float
    adjusted: tuple[str, ...]
    adapters: tuple[BoundAdapter, ...] = ()
    model_folder: str = ""
