"""LoRA adapters of a request: as it names them, as they were settled, and as a run bound them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A LoRA to run with: a safetensors file, or the folder of one and its `adapter_config.json` as peft saves it.

    `scale` multiplies what the file itself says (alpha / rank); any finite number, 0 is no effect. `sha256`, in hex,
    refuses other bytes than these.
    """

    path: str
    scale: float = 1.0
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedAdapter:
    """An adapter as a request settled it; `sha256` is that of the file, or of a folder's two files."""

    path: str
    sha256: str
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundAdapter:
    """What an adapter came to on a model: `layers` counts those that it alters, by component.

    `alpha_stated` False: the file says no alpha, which is then the rank, as diffusers and ComfyUI take it.
    """

    path: str
    sha256: str
    scale: float
    layers: Mapping[str, int]
    alpha_stated: bool
