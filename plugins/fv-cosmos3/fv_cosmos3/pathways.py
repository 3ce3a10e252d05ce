"""The two pathways through the one transformer: understanding (text, causal) and generation (all the rest).

Understanding attends to itself only, so its keys and values depend on neither the step nor the latents: generation is
given them and never recomputes them. Both pathways run the same modules in the same order as diffusers 0.42.1,
`Cosmos3AttnProcessor` and `Cosmos3VLTextMoTDecoderLayer`; understanding alone is transformers 5.24.0,
`Cosmos3OmniForConditionalGeneration`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
import torch.nn.functional as F
from diffusers import Cosmos3OmniTransformer
from torch import Tensor, nn

from fv_core.loop.packing import product
from fv_cosmos3.positions import text_positions

KeysValues: TypeAlias = list[Tensor]
"""Keys and values of every layer in turn (k0, v0, k1, v1, ..), each [tokens, kv heads, head dim]."""


def length(kv: Sequence[Tensor]) -> int:
    """Tokens that the keys and values are of."""
    return len(kv[0]) if kv else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A sample's tokens int64 [L], the position of the first, and keys and values of what comes before; [] for none."""

    tokens: Tensor
    start: int
    past: Sequence[Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A sample on a pathway: rows [N, hidden] at fp32 [3, N], and the keys and values that come before theirs."""

    hidden: Tensor
    positions: Tensor
    past: Sequence[Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pathway:
    """The modules of a pathway by their names in a layer, and the norm after the last one."""

    norm_in: str
    norm_mlp: str
    query: str
    key: str
    value: str
    norm_query: str
    norm_key: str
    out: str
    mlp: str
    norm: str
    causal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packing:
    """Samples one after another: rows of each, the rotary tables [N, 1, head dim] of all, fewest rows of a product."""

    lengths: list[int]
    rotary: tuple[Tensor, Tensor]
    least: int


_UNDERSTANDING: Final = _Pathway(
    norm_in="input_layernorm",
    norm_mlp="post_attention_layernorm",
    query="to_q",
    key="to_k",
    value="to_v",
    norm_query="norm_q",
    norm_key="norm_k",
    out="to_out",
    mlp="mlp",
    norm="norm",
    causal=True,
)
_GENERATION: Final = _Pathway(
    norm_in="input_layernorm_moe_gen",
    norm_mlp="post_attention_layernorm_moe_gen",
    query="add_q_proj",
    key="add_k_proj",
    value="add_v_proj",
    norm_query="norm_added_q",
    norm_key="norm_added_k",
    out="to_add_out",
    mlp="mlp_moe_gen",
    norm="norm_moe_gen",
    causal=False,
)


def understand(
    module: Cosmos3OmniTransformer, texts: Sequence[Text], least: int = 1
) -> tuple[list[Tensor], list[KeysValues]]:
    """Texts through the understanding pathway, packed; `least` rows to a product (`fv_core.loop.packing`).

    Returns:
        Of each, hidden states after the last norm [L, hidden], and the keys and values of past and tokens.
    """
    samples = [
        Rows(
            hidden=module.embed_tokens(text.tokens),
            positions=text_positions(text.start, len(text.tokens)),
            past=text.past,
        )
        for text in texts
    ]
    return _through(module, _UNDERSTANDING, samples, least)


def generate(module: Cosmos3OmniTransformer, samples: Sequence[Rows], least: int = 1) -> list[Tensor]:
    """Samples through the generation pathway, packed; each row sees its sample and the sample's prompt.

    Returns:
        Of each, hidden states after the last norm [N, hidden].
    """
    return _through(module, _GENERATION, samples, least, keep=False)[0]


def rowwise(module: Cosmos3OmniTransformer) -> list[tuple[nn.Module, int]]:
    """One of each shape among the layers that packed rows go through, with the width of what it takes.

    The generation pathway's have the shapes of the understanding pathway's.
    """
    names, layer = _UNDERSTANDING, module.layers[0]
    attention, hidden = layer.self_attn, module.config.hidden_size
    inner = [getattr(attention, name) for name in (names.query, names.key, names.value)]
    inner += [getattr(layer, names.mlp), getattr(layer, names.norm_in), module.lm_head]
    outer = (getattr(attention, names.out), module.config.num_attention_heads * attention.head_dim)
    return [*((one, hidden) for one in inner), outer]


def _through(
    module: Cosmos3OmniTransformer,
    names: _Pathway,
    samples: Sequence[Rows],
    least: int,
    *,
    keep: bool = True,
) -> tuple[list[Tensor], list[KeysValues]]:
    """Samples one after another in one sequence of rows, attention being each sample's own."""
    hidden, lengths = torch.cat([one.hidden for one in samples]), [len(one.hidden) for one in samples]
    # By sample: the last ones of an odd number of cosines are computed in another way than the rest.
    tables = [_rotary(module, one.positions.to(hidden.device), one.hidden) for one in samples]
    cos, sin = (torch.cat(part) for part in zip(*tables, strict=True))
    packing = _Packing(lengths=lengths, rotary=(cos, sin), least=least)
    kept: list[KeysValues] = [[] for _ in samples]
    for index, layer in enumerate(module.layers):
        pasts = [one.past[2 * index : 2 * index + 2] for one in samples]
        attended, own = _self_attention(layer, names, hidden, packing, pasts)
        if keep:
            for kv, pair in zip(kept, own, strict=True):
                kv += pair
        hidden = hidden + attended
        normed = product(getattr(layer, names.norm_mlp), hidden, least)
        hidden = hidden + product(getattr(layer, names.mlp), normed, least)
    return list(product(getattr(module, names.norm), hidden, least).split(lengths)), kept


def _self_attention(
    layer: Any, names: _Pathway, hidden: Tensor, packing: _Packing, pasts: Sequence[Sequence[Tensor]]
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """What a layer's attention adds to the rows [N, hidden], and each sample's keys and values with its past's."""
    attention, inner = layer.self_attn, product(getattr(layer, names.norm_in), hidden, packing.least)
    query, key, value = (
        _heads(product(getattr(attention, name), inner, packing.least), attention.head_dim)
        for name in (names.query, names.key, names.value)
    )
    query = _rotated(product(getattr(attention, names.norm_query), query, packing.least), packing.rotary)
    key = _rotated(product(getattr(attention, names.norm_key), key, packing.least), packing.rotary)
    queries, keys, values = (states.split(packing.lengths) for states in (query, key, value))
    kept = [_after(*sample) for sample in zip(pasts, keys, values, strict=True)]
    attended = [_attended(rows, *pair, causal=names.causal) for rows, pair in zip(queries, kept, strict=True)]
    return product(getattr(attention, names.out), torch.cat(attended), packing.least), kept


def _after(past: Sequence[Tensor], key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values with those that came before, in memory of their own: a cache does not hold its neighbours'."""
    if not past:
        return key.clone(), value.clone()
    return torch.cat([past[0], key]), torch.cat([past[1], value])


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
