"""The mixture of transformers: one stack of attention, two experts, on transformers' Qwen2 parts.

Reference: ByteDance-Seed/Bagel at 056b5fd5, `Qwen2ForCausalLM.forward_inference`. Names of parameters are those of
the published file. The understanding expert takes text and vision tokens, the generation expert latent tokens only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from diffusers.models.embeddings import get_timestep_embedding
from torch import Tensor, nn
from transformers import Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import (
    Qwen2MLP,
    Qwen2RMSNorm,
    Qwen2RotaryEmbedding,
    apply_rotary_pos_emb,
)

from fv_core.loop.packing import Rowwise, product

_FREQUENCIES = 256

KeyValues: TypeAlias = "tuple[Tensor, Tensor]"
"""Keys after RoPE and values of one layer, [L, key-value heads, head dim] each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Which rows of a sequence go to which expert: two index tensors that share all rows out.

    Each expert computes its rows as one matrix: how many rows it has decides how a product rounds.
    """

    understanding: Tensor
    generation: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Samples one after another in one sequence of rows; see `MotStack.forward`.

    Args:
        lengths: rows of each sample. route: of all rows; None sends every row to the understanding expert.
        causal: whether a row sees of its sample only what comes before it. least: fewest rows of a product.
    """

    lengths: tuple[int, ...]
    route: Route | None
    causal: bool
    least: int


class MotAttention(nn.Module):
    """Attention of one layer: projections and head-wise norms per expert, one softmax over all."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.hidden_size // self.heads
        for expert in ("", "_moe_gen"):
            for part, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)):
                projection = nn.Linear(config.hidden_size, heads * self.head_dim, bias=True)
                self.add_module(f"{part}_proj{expert}", projection)
            self.add_module(
                f"o_proj{expert}", nn.Linear(self.heads * self.head_dim, config.hidden_size, bias=False)
            )
            for part in ("q", "k"):
                self.add_module(f"{part}_norm{expert}", Qwen2RMSNorm(self.head_dim, eps=config.rms_norm_eps))

    def forward(
        self,
        hidden: Tensor,
        rotary: tuple[Tensor, Tensor],
        packing: Packing,
        past: Sequence[KeyValues | None],
    ) -> tuple[Tensor, list[KeyValues]]:
        """hidden [L, D] to ([L, D], of each sample the keys and values of its past and of its rows)."""
        query, key, value = (
            self._routed(f"{part}_proj", hidden, packing).unflatten(-1, (-1, self.head_dim)) for part in "qkv"
        )
        if (
            packing.route is not None
        ):  # fp32 at any precision for norms and RoPE, as the reference for latents
            query, key = query.float(), key.float()
        query, key = self._routed("q_norm", query, packing), self._routed("k_norm", key, packing)
        query, key = apply_rotary_pos_emb(query, key, *rotary, unsqueeze_dim=1)
        query, key = query.to(value.dtype), key.to(value.dtype)
        queries, keys, values = (part.split(packing.lengths) for part in (query, key, value))
        kept = [_after(*sample) for sample in zip(past, keys, values, strict=True)]
        attended = [
            self._attend(rows, *pair, packing.causal) for rows, pair in zip(queries, kept, strict=True)
        ]
        return self._routed("o_proj", torch.cat(attended).flatten(1), packing), kept

    def _routed(self, name: str, rows: Tensor, packing: Packing) -> Tensor:
        return routed(self.get_submodule(name), self.get_submodule(f"{name}_moe_gen"), rows, packing)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        repeats = self.heads // self.kv_heads
        q, k, v = (
            part.transpose(0, 1).unsqueeze(0)
            for part in (query, key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1))
        )
        mask = _lower_right(len(query), len(key), query.device) if causal else None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)[0].transpose(0, 1)


class MotLayer(nn.Module):
    """One decoder layer: norms and feed-forward per expert, around the shared attention."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.self_attn = MotAttention(config)
        for expert in ("", "_moe_gen"):
            self.add_module(f"mlp{expert}", Qwen2MLP(config))
            for norm in ("input_layernorm", "post_attention_layernorm"):
                self.add_module(f"{norm}{expert}", Qwen2RMSNorm(config.hidden_size, eps=config.rms_norm_eps))

    def forward(
        self,
        hidden: Tensor,
        rotary: tuple[Tensor, Tensor],
        packing: Packing,
        past: Sequence[KeyValues | None],
    ) -> tuple[Tensor, list[KeyValues]]:
        """hidden [L, D] to ([L, D], keys and values), as `MotAttention`."""
        normed = self._routed("input_layernorm", hidden, packing)
        attended, kept = self.self_attn(normed, rotary, packing, past)
        hidden = hidden + attended
        normed = self._routed("post_attention_layernorm", hidden, packing)
        return hidden + self._routed("mlp", normed, packing), kept

    def _routed(self, name: str, rows: Tensor, packing: Packing) -> Tensor:
        return routed(self.get_submodule(name), self.get_submodule(f"{name}_moe_gen"), rows, packing)


class MotStack(nn.Module):
    """Token embedding, layers, and a final norm per expert."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(MotLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = Qwen2RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.norm_moe_gen = Qwen2RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.rotary_emb = Qwen2RotaryEmbedding(config)

    def forward(
        self,
        rows: Sequence[Tensor],
        positions: Sequence[Tensor],
        *,
        past: Sequence[Sequence[KeyValues]],
        routes: Sequence[Route] | None = None,
        causal: bool = False,
        keep: bool = True,
        least: int = 1,
    ) -> tuple[list[Tensor], list[list[KeyValues]]]:
        """Samples through the stack in one go, each seeing its own past and itself.

        Args:
            rows: of each sample, embedded [L, D]. positions: int64 [L]. past: of each layer, or [].
            routes: of each sample; None sends every row to the understanding expert.
            keep: without it no keys and values are returned: with a long past those of all layers are larger than
                all else.
            least: fewest rows of a product; see `fv_core.loop.packing`.

        Returns:
            Of each sample the normed rows [L, D], and the keys and values of every layer.
        """
        hidden, lengths = torch.cat(list(rows)), tuple(map(len, rows))
        route = None if routes is None else _joined(routes, lengths)
        packing = Packing(lengths=lengths, route=route, causal=causal, least=least)
        # By sample: the last ones of an odd number of cosines are computed in another way than the rest.
        tables = [self.rotary_emb(hidden, own.unsqueeze(0)) for own in positions]
        cos, sin = (torch.cat([table[0] for table in part]) for part in zip(*tables, strict=True))
        kept: list[list[KeyValues]] = [[] for _ in lengths]
        for index, layer in enumerate(self.layers):
            before = [sample[index] if sample else None for sample in past]
            hidden, after = layer(hidden, (cos, sin), packing, before)
            if keep:
                for sample, pair in zip(kept, after, strict=True):
                    sample.append(pair)
        return list(routed(self.norm, self.norm_moe_gen, hidden, packing).split(lengths)), kept


class CausalLm(nn.Module):
    """The stack and its head, as the published file groups them."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.model = MotStack(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)


class TimeEmbedder(nn.Module):
    """Embeds times in [0, 1], not multiplied by 1000, one row each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(_FREQUENCIES, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, times: Tensor) -> Tensor:
        """[N] to [N, width]."""
        waves = get_timestep_embedding(times, _FREQUENCIES, flip_sin_to_cos=True, downscale_freq_shift=0)
        embedded: Tensor = self.mlp(waves.to(self.mlp[0].weight.dtype))
        return embedded


class PositionTable(nn.Module):
    """A stored embedding per cell of a square grid, row by row."""

    def __init__(self, side: int, width: int) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.empty(side**2, width))

    def forward(self, cells: Tensor) -> Tensor:
        """Cell numbers [N] to [N, width]."""
        return self.pos_embed[cells]


class Mixture(nn.Module):
    """Everything that text and latent tokens need: the language model and the way of latents in and out."""

    def __init__(self, config: Qwen2Config, *, latent_width: int, latent_side: int) -> None:
        super().__init__()
        self.language_model = CausalLm(config)
        self.vae2llm = nn.Linear(latent_width, config.hidden_size)
        self.llm2vae = nn.Linear(config.hidden_size, latent_width)
        self.time_embedder = TimeEmbedder(config.hidden_size)
        self.latent_pos_embed = PositionTable(latent_side, config.hidden_size)

    @property
    def rowwise(self) -> list[tuple[nn.Module, int]]:
        """One of each shape among the layers that packed rows go through, with the width of what it takes."""
        first = self.language_model.model.layers[0]
        assert isinstance(first, MotLayer)
        width, attention = self.vae2llm.out_features, first.self_attn
        inner = [attention.get_submodule(f"{part}_proj") for part in "qkv"]
        layers = [*inner, first.get_submodule("mlp"), first.get_submodule("input_layernorm")]
        outer = (attention.get_submodule("o_proj"), attention.heads * attention.head_dim)
        return [*((layer, width) for layer in layers), outer, (self.language_model.lm_head, width)]

    def embed_latent(self, tokens: Tensor, times: Tensor, cells: Tensor) -> Tensor:
        """Latent tokens [N, latent width] at times [N] or [1] and cells [N] to rows [N, D]."""
        rows = self.vae2llm(tokens.to(self.vae2llm.weight.dtype))
        embedded: Tensor = rows + self.time_embedder(times) + self.latent_pos_embed(cells)
        return embedded


def routed(understanding: Rowwise, generation: Rowwise, rows: Tensor, packing: Packing) -> Tensor:
    """Rows [L, ...] through their experts, each expert's rows as one matrix."""
    route = packing.route
    if route is None:
        return product(understanding, rows, packing.least)
    first = product(understanding, rows[route.understanding], packing.least)
    out = first.new_empty((len(rows), *first.shape[1:]))
    out[route.understanding] = first
    out[route.generation] = product(generation, rows[route.generation], packing.least)
    return out


def _joined(routes: Sequence[Route], lengths: Sequence[int]) -> Route:
    """The route of all samples' rows in one sequence."""
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    return Route(
        understanding=torch.cat(
            [one.understanding + start for one, start in zip(routes, starts, strict=True)]
        ),
        generation=torch.cat([one.generation + start for one, start in zip(routes, starts, strict=True)]),
    )


def _after(past: KeyValues | None, key: Tensor, value: Tensor) -> KeyValues:
    """Keys and values with those that came before, in memory of their own: a context does not hold its neighbours'."""
    if past is None:
        return key.clone(), value.clone()
    return torch.cat([past[0], key]), torch.cat([past[1], value])


def _lower_right(queries: int, keys: int, device: torch.device) -> Tensor:
    """True where a query may look: itself and what came before, the last query seeing every key."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
