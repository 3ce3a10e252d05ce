"""Inputs to measure with: a picture, a video and actions that anybody makes again, byte for byte."""

from __future__ import annotations

import io
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from PIL import Image

from fv_core.errors import RequestError
from fv_core.media.video import encode_mp4
from fv_core.program import InputSpec
from fv_core.request import Modality, ModalPart, Size

_ACTIONS = (16, 10)
_RATE = Fraction(16)


def sample(spec: InputSpec, size: Size, frames: int) -> ModalPart:
    """An input of the kind that a task reads, at the size and length of the request.

    Raises:
        RequestError: FV308, there is no sample of this kind; a card with such a task names its own probes.
    """
    if spec.modality is Modality.IMAGE:
        return ModalPart(modality=Modality.IMAGE, data=_png(_pictures(size, 1)[0]))
    if spec.modality is Modality.VIDEO:
        video = encode_mp4(_pictures(size, max(frames, 1)), _RATE, "")
        return ModalPart(modality=Modality.VIDEO, data=video)
    if spec.modality is Modality.ACTION:
        return ModalPart(modality=Modality.ACTION, data=_npy(_actions()))
    raise RequestError(
        "FV308",
        name=f"{spec.modality} input",
        rule="has no sample to measure with",
        remedy="Name requests of the card's own in ParitySpec.probes.",
    )


def _pictures(size: Size, count: int) -> npt.NDArray[np.uint8]:
    """A bright square that moves over two ramps: edges, colours and time all show."""
    rows, columns = np.mgrid[0 : size.height, 0 : size.width]
    frames = np.zeros((count, size.height, size.width, 3), np.uint8)
    frames[..., 0] = rows * 255 // size.height
    frames[..., 1] = columns * 255 // size.width
    side = max(size.height, size.width) // 4
    for number, frame in enumerate(frames):
        left = (number * side // 2) % max(1, size.width - side)
        frame[side : 2 * side, left : left + side, 2] = 255
    return frames


def _actions() -> npt.NDArray[np.float32]:
    steps, values = _ACTIONS
    return np.sin(np.arange(steps * values, dtype=np.float32)).reshape(steps, values)


def _png(picture: npt.NDArray[np.uint8]) -> bytes:
    memory = io.BytesIO()
    Image.fromarray(picture).save(memory, format="PNG")
    return memory.getvalue()


def _npy(actions: npt.NDArray[np.float32]) -> bytes:
    memory = io.BytesIO()
    np.save(memory, actions, allow_pickle=False)
    return memory.getvalue()
