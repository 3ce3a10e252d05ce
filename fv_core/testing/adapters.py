"""Adapters to test with: random factors for the layers of a module, written as diffusers writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fv_core.adapters.binding import Layer


def adaptable(module: nn.Module) -> dict[str, Layer]:
    """The layers of a module that an adapter can alter, by name."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, Layer)}


def factors(
    module: nn.Module, *, seed: int, rank: int = 4, of: Callable[[str], bool] = lambda name: True
) -> dict[str, tuple[Tensor, Tensor]]:
    """Random factors, down and up, of the layers whose names `of` takes: fp32, none of them without effect."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, layer in adaptable(module).items():
        if of(name):
            high, *wide = layer.weight.shape
            low = (high, rank, *(1 for _ in wide[1:]))
            found[name] = (
                torch.randn((rank, *wide), generator=generator) * 0.1,
                torch.randn(low, generator=generator) * 0.1,
            )
    return found


def write_adapter(
    path: Path,
    layers: dict[str, tuple[Tensor, Tensor]],
    *,
    prefix: str = "transformer.",
    alpha: float | None = None,
) -> Path:
    """Writes the factors with the names that diffusers gives; `alpha` as ComfyUI states it, None leaves it out."""
    tensors: dict[str, Tensor] = {}
    for name, (down, up) in layers.items():
        tensors[f"{prefix}{name}.lora_A.weight"] = down
        tensors[f"{prefix}{name}.lora_B.weight"] = up
        if alpha is not None:
            tensors[f"{prefix}{name}.alpha"] = torch.tensor(alpha)
    save_file(tensors, path)
    return path
