"""What the model is told before it thinks. The line breaks after a space are the published prompts' own.

Reference: ByteDance-Seed/Bagel at 056b5fd5, `inferencer.py`. Free of torch: the cards hold these texts.
"""

from __future__ import annotations

from typing import Final

PLANNING: Final = (
    "You should first think about the planning process in the mind and then generate the image. \n"
    "The planning process is enclosed within <think> </think> tags, i.e. "
    "<think> planning process here </think> image here"
)
"""What comes before the prompt of an image that is to be thought about."""

REASONING: Final = (
    "You should first think about the reasoning process in the mind and then provide the user with the answer. \n"
    "The reasoning process is enclosed within <think> </think> tags, i.e. "
    "<think> reasoning process here </think> answer here"
)
"""What comes before a question that is to be thought about."""
