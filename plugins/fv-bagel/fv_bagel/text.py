"""How text becomes tokens and back: the framing of a block.

Reference: ByteDance-Seed/Bagel at 056b5fd5, `prepare_prompts`, `gen_text` and `add_special_tokens`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

_BEGIN, _END = "<|im_start|>", "<|im_end|>"
MARKS: Final = (_BEGIN, _END, "<|vision_start|>", "<|vision_end|>")
"""The tokens that frame a text block and an image block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Ids of the tokens that frame a text block and an image block."""

    begin: int
    end: int
    image_begin: int
    image_end: int


class Words:
    """A tokenizer with its marks."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        begin, end, image_begin, image_end = tokenizer.convert_tokens_to_ids(list(MARKS))
        self.marks = Marks(begin=begin, end=end, image_begin=image_begin, image_end=image_end)

    def block(self, text: str) -> Tensor:
        """The ids of a text block, int64 [L]."""
        ids = self.tokenizer.encode(text)
        return torch.tensor([self.marks.begin, *ids, self.marks.end])

    def start(self) -> Tensor:
        """What a text that the model writes starts with, int64 [1]."""
        return torch.tensor([self.marks.begin])

    def text(self, written: Tensor) -> str:
        """What the model wrote after `start`, up to its end mark."""
        whole: str = self.tokenizer.decode([self.marks.begin, *written.tolist()])
        return whole.split(_END)[0].split(_BEGIN)[1]
