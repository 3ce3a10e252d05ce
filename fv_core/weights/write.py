"""Writes a component as diffusers and transformers do, so that they and the strict reader read it back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of a module that files hold, those that are tied under their first name alone."""
    parameters = dict(module.named_parameters())
    shared = {parameter.data_ptr() for parameter in parameters.values()}
    buffers = {
        name: tensor
        for name, tensor in module.state_dict().items()
        if name not in parameters and tensor.data_ptr() not in shared
    }
    return {name: tensor.detach() for name, tensor in {**parameters, **buffers}.items()}


def write_component(
    folder: Path,
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    config: Mapping[str, object],
    dtype: torch.dtype,
) -> None:
    """Writes `config.json` and one file of tensors into a new folder.

    Args:
        config: of the architecture, for a module that has none of its own.
        dtype: of what is written; tensors that are kept in fp32 at any precision are read back as such.
    """
    folder.mkdir(parents=True)
    own: Any = getattr(module, "config", None)
    if hasattr(module, "save_config"):  # diffusers
        own_folder: Any = module
        own_folder.save_config(folder)
        stem = "diffusion_pytorch_model"
    elif hasattr(own, "save_pretrained"):  # transformers
        own.save_pretrained(folder)
        stem = "model"
    else:
        (folder / "config.json").write_text(json.dumps(dict(config), indent=1, sort_keys=True) + "\n")
        stem = "model"
    stored = {
        name: tensor.to(dtype if tensor.is_floating_point() else tensor.dtype).contiguous()
        for name, tensor in tensors.items()
    }
    save_file(stored, folder / f"{stem}.safetensors", metadata={"format": "pt"})
