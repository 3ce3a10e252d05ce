"""The text side: Gemma's hidden states of a prompt, and the connectors that turn them into embeddings per modality.

Reference: diffusers 0.42.1, `LTX2Pipeline._get_gemma_prompt_embeds` and `LTX2TextConnectors`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from diffusers.pipelines.ltx2.connectors import LTX2TextConnectors
from torch import Tensor
from transformers import Gemma3TextModel

from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import tensor, unstacked
from fv_core.loop.rowwise import rowwise, sharing


class TextEncoder:
    """Op `encode`: row text (str); outputs hidden [max_length, width * (layers + 1)] and mask int64 [max_length].

    Hidden holds the embeddings and every layer's states, the layer the fastest of its last axis. Prompts are padded
    on the left; the mask is 0 there.
    """

    def __init__(self, module: Gemma3TextModel, tokenizer: Any, max_length: int) -> None:
        self.module = rowwise(module)
        self.tokenizer = tokenizer
        self.tokenizer.padding_side = "left"
        self._max_length = max_length

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return op

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        prompts = [str(call.rows["text"]).strip() for call in calls]
        tokens = self.tokenizer(
            prompts,
            padding="max_length",
            max_length=self._max_length,
            truncation=True,
            add_special_tokens=True,
            return_tensors="pt",
        )
        device = self.module.device
        mask = tokens.attention_mask.to(device)
        with sharing(calls):
            states = self.module(
                input_ids=tokens.input_ids.to(device), attention_mask=mask, output_hidden_states=True
            ).hidden_states
        hidden = torch.stack(states, dim=-1).flatten(2, 3)
        return [
            ComponentOutput(output=CallOutput(tensors={"hidden": row, "mask": used}, notes=self._cut(prompt)))
            for row, used, prompt in zip(unstacked(hidden), unstacked(mask), prompts, strict=True)
        ]

    def _cut(self, prompt: str) -> tuple[str, ...]:
        count = len(self.tokenizer(prompt, add_special_tokens=True).input_ids)
        if count <= self._max_length:
            return ()
        return (f"the prompt has {count} tokens and was cut to the {self._max_length} that the model takes",)


class Connectors:
    """Op `connect`: rows hidden [L, D] and mask [L] of the prompt and, with guidance, negative_hidden and
    negative_mask of the negative one; outputs video [N, L, Dv], audio [N, L, Da] and mask int64 [N, L].

    N is 1, or 2 in the order negative, positive: both go through one forward, as the reference has it.
    """

    def __init__(self, module: LTX2TextConnectors) -> None:
        self.module = module
        self._dtype = module.dtype

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        return [self._connect(call) for call in calls]

    def _connect(self, call: ResolvedCall) -> ComponentOutput:
        prompts = ("negative_", "") if "negative_hidden" in call.rows else ("",)
        hidden = torch.stack([tensor(call, f"{prompt}hidden") for prompt in prompts])
        mask = torch.stack([tensor(call, f"{prompt}mask") for prompt in prompts])
        video, audio, mask = self.module(hidden.to(self._dtype), mask, padding_side="left")
        found: dict[str, Tensor] = {"video": video, "audio": audio, "mask": mask}
        return ComponentOutput(output=CallOutput(tensors=found))
