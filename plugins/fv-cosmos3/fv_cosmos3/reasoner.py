"""The reasoner as transformers has it, over the tensors of the diffusers transformer: the reference of every text."""

from __future__ import annotations

from typing import Any

import torch
from diffusers import Cosmos3OmniTransformer
from torch import Tensor
from transformers import Cosmos3OmniConfig, Cosmos3OmniForConditionalGeneration

_PREFIX = "model.language_model."
_NAMES = {
    "to_q": "q_proj",
    "to_k": "k_proj",
    "to_v": "v_proj",
    "to_out": "o_proj",
    "norm_q": "q_norm",
    "norm_k": "k_norm",
}


def tied_reasoner(module: Cosmos3OmniTransformer) -> Any:
    """`Cosmos3OmniForConditionalGeneration` whose language model is made of the module's own tensors.

    Its vision tower is one small layer that text never reaches.
    """
    own = dict(module.named_parameters())
    with torch.random.fork_rng(devices=[]):
        reasoner = (
            Cosmos3OmniForConditionalGeneration(_config(module)).eval().to(module.lm_head.weight.device)
        )
    for name, parameter in reasoner.named_parameters():
        if not name.startswith("model.visual."):
            parameter.data = own[_own_name(name)].data
    return reasoner


def greedy(
    reasoner: Any, tokens: list[int], limit: int, stop: tuple[int, ...]
) -> tuple[list[int], list[Tensor]]:
    """Tokens that the reasoner writes after `tokens`, and the logits [vocabulary] that each was taken from."""
    prompt = torch.tensor([tokens], device=reasoner.device)
    written = reasoner.generate(
        prompt,
        max_new_tokens=limit,
        do_sample=False,
        eos_token_id=list(stop),
        pad_token_id=stop[0],
        output_logits=True,
        return_dict_in_generate=True,
    )
    return written.sequences[0, len(tokens) :].tolist(), [logits[0] for logits in written.logits]


def _own_name(name: str) -> str:
    theirs = {value: key for key, value in _NAMES.items()}
    return ".".join(theirs.get(part, part) for part in name.removeprefix(_PREFIX).split("."))


def _config(module: Cosmos3OmniTransformer) -> Cosmos3OmniConfig:
    config = module.config
    text = {
        "model_type": "qwen3_vl_text",
        "vocab_size": config.vocab_size,
        "head_dim": config.head_dim,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "num_hidden_layers": config.num_hidden_layers,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": config.rope_theta,
            "mrope_section": list(config.rope_axes_dim),
        },
    }
    vision = {
        "model_type": "qwen3_vl_vision",
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "patch_size": 4,
        "out_hidden_size": config.hidden_size,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0],
    }
    return Cosmos3OmniConfig(text_config=text, vision_config=vision)
