"""The prompt's embeddings: transformers' UMT5 encoder at the fixed length that Wan was trained with."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from torch import Tensor
from transformers import UMT5EncoderModel

from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import unstacked
from fv_core.loop.rowwise import rowwise, sharing
from fv_wan_causal.text import clean


class TextEncoder:
    """Op `encode`: row text (str), output embeds [max_length, D] with rows past the prompt's end set to zero.

    All `max_length` rows are attended by the denoiser, zeros included: another length is another model.
    """

    def __init__(self, module: UMT5EncoderModel, tokenizer: Any, max_length: int) -> None:
        self.module = rowwise(module)
        self.tokenizer = tokenizer
        self._max_length = max_length

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return op

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        prompts = [clean(str(call.rows["text"])) for call in calls]
        tokens = self.tokenizer(
            prompts,
            padding="max_length",
            max_length=self._max_length,
            truncation=True,
            add_special_tokens=True,
            return_attention_mask=True,
            return_tensors="pt",
        )
        device = next(self.module.parameters()).device
        mask = tokens.attention_mask.to(device)
        with sharing(calls):
            embeds: Tensor = self.module(tokens.input_ids.to(device), mask).last_hidden_state
        embeds = embeds.masked_fill(mask.unsqueeze(-1) == 0, 0.0)
        return [
            ComponentOutput(output=CallOutput(tensors={"embeds": row}, notes=self._cut(prompt)))
            for row, prompt in zip(unstacked(embeds), prompts, strict=True)
        ]

    def _cut(self, prompt: str) -> tuple[str, ...]:
        count = len(self.tokenizer(prompt, add_special_tokens=True).input_ids)
        if count <= self._max_length:
            return ()
        return (
            f"the prompt has {count} tokens and was cut to the {self._max_length} that the model was trained with",
        )
