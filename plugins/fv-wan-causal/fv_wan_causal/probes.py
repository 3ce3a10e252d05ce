"""The requests that the cards are measured with: as small as they may be, with chunks that leave the tiny window."""

from __future__ import annotations

from pathlib import Path

from fv_core.card import ModelCard
from fv_core.request import Modality, ModalPart, Request, TaskType

_ASSETS = Path(__file__).parent / "assets"
_SIZE = (48, 32)
_PROMPT = "a red circle moving right over a green square"


def probes(card: ModelCard) -> tuple[Request, ...]:
    """Three chunks from text, one from text, one after an image, and one after a clip of 9 frames."""
    image = ModalPart(modality=Modality.IMAGE, data=(_ASSETS / "probe.png").read_bytes())
    video = ModalPart(modality=Modality.VIDEO, data=(_ASSETS / "probe.mp4").read_bytes())
    return (
        _probe(card, TaskType.T2V, seed=7, frames=33),
        _probe(card, TaskType.T2V, seed=2**63 + 11, frames=9),
        _probe(card, TaskType.I2V, image, seed=13, frames=13),
        _probe(card, TaskType.V2V, video, seed=17, frames=21),
    )


def _probe(card: ModelCard, task: TaskType, *inputs: ModalPart, seed: int, frames: int) -> Request:
    return Request(
        prompt=_PROMPT,
        model=card.model_id,
        task=task,
        seed=seed,
        size=_SIZE,
        frames=frames,
        inputs=inputs,
    )
