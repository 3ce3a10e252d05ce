"""The two pathways through the one transformer: understanding (text, causal) and generation (all the rest).

Understanding attends to itself only, so its keys and values depend on neither the step nor the latents: generation is
given them and never recomputes them. Both pathways run the same modules in the same order as diffusers 0.42.1,
`Cosmos3AttnProcessor` and `Cosmos3VLTextMoTDecoderLayer`; understanding alone is transformers 5.24.0,
`Cosmos3OmniForConditionalGeneration`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import torch
import torch.nn.functional as F
from diffusers import Cosmos3OmniTransformer
from torch import Tensor

from fv_cosmos3.positions import text_positions

KeysValues: TypeAlias = list[Tensor]
"""Keys and values of every layer in turn (k0, v0, k1, v1, ..), each [tokens, kv heads, head dim]."""


def length(kv: Sequence[Tensor]) -> int:
    """Tokens that the keys and values are of."""
    return len(kv[0]) if kv else 0


def understand(
    module: Cosmos3OmniTransformer, tokens: Tensor, start: int, past: Sequence[Tensor]
) -> tuple[Tensor, KeysValues]:
    """Text through the understanding pathway.

    Args:
        tokens: int64 [L].
        start: position of the first token.
        past: keys and values of what comes before; [] for nothing.

    Returns:
        Hidden states after the last norm [L, hidden], and the keys and values of past and tokens.
    """
    hidden = module.embed_tokens(tokens)
    rotary = _rotary(module, text_positions(start, len(tokens)).to(hidden.device), hidden)
    kv: KeysValues = []
    for index, layer in enumerate(module.layers):
        attention, inner = layer.self_attn, layer.input_layernorm(hidden)
        query = _rotated(attention.norm_q(_heads(attention.to_q(inner), attention.head_dim)), rotary)
        key = _rotated(attention.norm_k(_heads(attention.to_k(inner), attention.head_dim)), rotary)
        value = _heads(attention.to_v(inner), attention.head_dim)
        if past:
            key = torch.cat([past[2 * index], key])
            value = torch.cat([past[2 * index + 1], value])
        kv += [key, value]
        hidden = hidden + attention.to_out(_attended(query, key, value, causal=True))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return module.norm(hidden), kv


def generate(
    module: Cosmos3OmniTransformer, hidden: Tensor, positions: Tensor, text: Sequence[Tensor]
) -> Tensor:
    """Tokens through the generation pathway, each seeing the text and all of them.

    Args:
        hidden: [N, hidden]. positions: fp32 [3, N]. text: keys and values of the prompt.

    Returns:
        Hidden states after the last norm [N, hidden].
    """
    rotary = _rotary(module, positions.to(hidden.device), hidden)
    for index, layer in enumerate(module.layers):
        attention, inner = layer.self_attn, layer.input_layernorm_moe_gen(hidden)
        query = _rotated(
            attention.norm_added_q(_heads(attention.add_q_proj(inner), attention.head_dim)), rotary
        )
        key = _rotated(
            attention.norm_added_k(_heads(attention.add_k_proj(inner), attention.head_dim)), rotary
        )
        value = _heads(attention.add_v_proj(inner), attention.head_dim)
        key = torch.cat([text[2 * index], key])
        value = torch.cat([text[2 * index + 1], value])
        hidden = hidden + attention.to_add_out(_attended(query, key, value, causal=False))
        hidden = hidden + layer.mlp_moe_gen(layer.post_attention_layernorm_moe_gen(hidden))
    return cast(Tensor, module.norm_moe_gen(hidden))


def _heads(projected: Tensor, head_dim: int) -> Tensor:
    return projected.view(len(projected), -1, head_dim)


def _rotary(module: Cosmos3OmniTransformer, positions: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = module.rotary_emb(
        position_ids=positions.unsqueeze(1), device=hidden.device, dtype=hidden.dtype
    )
    return cos[0].unsqueeze(1), sin[0].unsqueeze(1)


def _rotated(states: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rotary
    first, second = states.chunk(2, dim=-1)
    return states * cos + torch.cat((-second, first), dim=-1) * sin


def _attended(query: Tensor, key: Tensor, value: Tensor, *, causal: bool) -> Tensor:
    """[N, heads, head dim] over [M, kv heads, head dim] to [N, heads * head dim]. Causal: the last N of the M."""
    fresh = len(query) == len(key)
    mask = None
    if causal and not fresh and len(query) > 1:
        mask = torch.ones(len(query), len(key), dtype=torch.bool, device=query.device)
        mask = mask.tril(len(key) - len(query))
    q, k, v = (states.transpose(0, 1).unsqueeze(0) for states in (query, key, value))
    attended = F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        is_causal=causal and fresh and len(query) > 1,
        enable_gqa=True,
    )
    return attended[0].transpose(0, 1).flatten(1)
