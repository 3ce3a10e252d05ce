"""The vision tower and its way into the language model, on transformers' Siglip layers.

Reference: ByteDance-Seed/Bagel at 056b5fd5, `SiglipVisionModel` (patches through one linear layer, no head).
"""

from __future__ import annotations

from torch import Tensor, nn
from transformers import SiglipVisionConfig
from transformers.activations import ACT2FN
from transformers.models.siglip.modeling_siglip import SiglipEncoderLayer

from fv_bagel.mot import PositionTable


class PatchEmbedding(nn.Module):
    """Flat patches [N, p * p * channels] and a learned embedding per cell of the tower's own grid."""

    def __init__(self, config: SiglipVisionConfig) -> None:
        super().__init__()
        side = config.image_size // config.patch_size
        self.patch_embedding = nn.Linear(config.num_channels * config.patch_size**2, config.hidden_size)
        self.position_embedding = nn.Embedding(side**2, config.hidden_size)

    def forward(self, patches: Tensor, cells: Tensor) -> Tensor:
        embedded: Tensor = self.patch_embedding(patches) + self.position_embedding(cells)
        return embedded


class Encoder(nn.Module):
    """The layers, under the name that the published file gives them."""

    def __init__(self, config: SiglipVisionConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(SiglipEncoderLayer(config) for _ in range(config.num_hidden_layers))


class Tower(nn.Module):
    """Patches to features, [N, p * p * channels] to [N, width]; every patch sees every other."""

    def __init__(self, config: SiglipVisionConfig) -> None:
        super().__init__()
        self.embeddings = PatchEmbedding(config)
        self.encoder = Encoder(config)
        self.post_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, patches: Tensor, cells: Tensor) -> Tensor:
        hidden = self.embeddings(patches, cells).unsqueeze(0)
        for layer in self.encoder.layers:
            hidden = layer(hidden, None)
        normed: Tensor = self.post_layernorm(hidden[0])
        return normed


class VisionModel(nn.Module):
    """The tower, under the name that the published file gives it."""

    def __init__(self, config: SiglipVisionConfig) -> None:
        super().__init__()
        self.vision_model = Tower(config)


class Connector(nn.Module):
    """Two linear layers from the tower's width to the language model's."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width_in, width)
        self.act = ACT2FN["gelu_pytorch_tanh"]
        self.fc2 = nn.Linear(width, width)

    def forward(self, features: Tensor) -> Tensor:
        connected: Tensor = self.fc2(self.act(self.fc1(features)))
        return connected


class Vision(nn.Module):
    """Patches of one image to rows of the language model."""

    def __init__(self, config: SiglipVisionConfig, *, side: int, width: int) -> None:
        super().__init__()
        self.vit_model = VisionModel(config)
        self.connector = Connector(config.hidden_size, width)
        self.vit_pos_embed = PositionTable(side, width)

    def forward(self, patches: Tensor, cells: Tensor) -> Tensor:
        """[N, p * p * channels] in [-1, 1] and cell numbers [N] to [N, width]."""
        features = self.connector(self.vit_model.vision_model(patches, cells))
        embedded: Tensor = features + self.vit_pos_embed(cells)
        return embedded
