"""The exact text that the model is prompted with. Free of torch.

Reference: diffusers 0.42.1, `Cosmos3OmniPipeline.tokenize_prompt` and `_build_action_json_prompt`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from fv_core.request import Size
from fv_cosmos3.embodiments import VIEWS

_SYSTEM_IMAGE: Final = "You are a helpful assistant who will generate images from a give prompt."
_SYSTEM_VIDEO: Final = "You are a helpful assistant who will generate videos from a give prompt."
_ASPECTS: Final = ("1,1", "4,3", "3,4", "16,9", "9,16")


def clip_prompt(prompt: str, size: Size, frames: int, fps: float, *, negative: bool) -> str:
    """The prompt with the sentences about length and size that the model was trained with; one frame is an image."""
    no = "not " if negative else ""
    if frames > 1:
        prompt = _joined(
            prompt, f"The video is {no}{frames / fps:.1f} seconds long and is {no}of {fps:.0f} FPS."
        )
    kind = "image" if frames == 1 else "video"
    return _joined(prompt, f"This {kind} is {no}of {size.height}x{size.width} resolution.")


def action_prompt(task: str, view: str, canvas: Size, frames: int, fps: float) -> str:
    """The JSON caption of the action modes, as a string."""
    seconds = frames / fps
    minutes, rest = divmod(round(seconds), 60)
    description = task.strip()
    if description and not description.endswith((".", "!", "?")):
        description += "."
    caption: dict[str, Any] = {
        "cinematography": {"framing": VIEWS[view]},
        "actions": [{"time": f"0:00-{minutes}:{rest:02d}", "description": description}],
        "duration": f"{int(seconds)}s",
        "fps": float(fps),
        "resolution": {"H": canvas.height, "W": canvas.width},
        "aspect_ratio": min(_ASPECTS, key=lambda aspect: abs(_ratio(aspect) - canvas.width / canvas.height)),
    }
    return json.dumps(caption)


def clip_conversation(text: str, frames: int) -> list[dict[str, str]]:
    """System and user turns of a generation."""
    system = _SYSTEM_IMAGE if frames == 1 else _SYSTEM_VIDEO
    return [{"role": "system", "content": system}, *conversation(text)]


def conversation(text: str) -> list[dict[str, str]]:
    """A user turn alone: questions, and the action modes."""
    return [{"role": "user", "content": text}]


def _joined(text: str, sentence: str) -> str:
    text = text.rstrip(".")
    return f"{text}. {sentence}" if text else sentence


def _ratio(aspect: str) -> float:
    width, height = aspect.split(",")
    return int(width) / int(height)
