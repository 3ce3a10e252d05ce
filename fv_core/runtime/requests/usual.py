"""What a card makes of a request that says nothing: its memory is what the card is predicted and judged by."""

from __future__ import annotations

from fv_core.card import ModelCard
from fv_core.request import Numerics, Request, ResolvedRequest, TaskType, UsedInput
from fv_core.runtime.requests.inputs import Inputs
from fv_core.runtime.requests.resolve import settle


def usual(card: ModelCard, task: TaskType, numerics: Numerics = Numerics.EXACT) -> ResolvedRequest:
    """The settled request for `task` with all defaults; of its inputs there is only the kind."""
    inputs = tuple(UsedInput(modality=one.modality, path="", sha256="") for one in card.programs[task].inputs)
    return settle(Request(prompt=card.model_id, task=task), card, numerics, Inputs(used=inputs)).request
