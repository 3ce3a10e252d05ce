"""The model that is trained, behind the card's own loops: implements `contract.Model`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fv_core.card import ModelCard
from fv_core.errors import TrainError
from fv_core.loop.one_call import OneCall, OneCallState
from fv_core.loop.policies.guidance import COND
from fv_core.program import ComponentNode, LoopNode
from fv_core.runtime.execution.direct import predictions
from fv_core.runtime.instance import ModelInstance


class _Way(NamedTuple):
    """How the card's first task comes from a prompt to a latent."""

    encode: ComponentNode
    output: str
    denoise: LoopNode


class TrainedModel:
    """A resident model as methods see it.

    Raises:
        TrainError: FV704, no loop along a flow reads what a component makes of the prompt.
    """

    def __init__(self, instance: ModelInstance) -> None:
        self.instance = instance
        self._way = _way(instance.card)
        self._flow: Any = instance.loop(self._way.denoise.loop)
        self._encoder = OneCall(self._way.encode)
        if not hasattr(self._flow, "at"):
            raise _unfit(
                self.card, f"its loop {self._way.denoise.loop} cannot begin at a noise level of one's choice"
            )

    @property
    def card(self) -> ModelCard:
        return self.instance.card

    @property
    def device(self) -> torch.device:
        return self.instance.device

    @property
    def text_encoder(self) -> str:
        return self._way.encode.component

    @property
    def denoisers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.card.loops[self._way.denoise.loop].binds.values()))

    def module(self, component_id: str) -> nn.Module:
        if component_id not in self.card.components:
            raise TrainError(
                "FV704",
                name="component",
                value=component_id,
                rule=f"is none of {self.card.model_id}",
                legal=", ".join(self.card.components),
                remedy="Name some of these.",
            )
        return self.instance.component(component_id).module

    def encode(self, texts: Sequence[str], *, grad: bool) -> list[Tensor]:
        (role,) = self._way.encode.reads
        states = [OneCallState(rows={role: text}, outputs=None) for text in texts]
        outputs = predictions(self.instance, self._encoder, states, grad=grad)
        return [_tensor(output[self._way.output]) for output in outputs]

    def velocity(
        self, latents: Tensor, sigmas: Sequence[float], conds: Sequence[Tensor], *, grad: bool
    ) -> Tensor:
        states = [
            self._flow.at(latent, sigma, {COND: cond})
            for latent, sigma, cond in zip(latents.unbind(), sigmas, conds, strict=True)
        ]
        return torch.stack(
            [one.velocity for one in predictions(self.instance, self._flow, states, grad=grad)]
        )


def _way(card: ModelCard) -> _Way:
    """The nodes of the first task that encode its prompt and denoise under it."""
    program = card.programs[card.capabilities[0]]
    loops = [
        node
        for node in program.nodes
        if isinstance(node, LoopNode) and card.loops[node.loop].semantics == card.recipe.assumes_loop
    ]
    for denoise in loops:
        slot = denoise.reads.get(COND)
        for node in program.nodes:
            output = next((name for name, written in node.writes.items() if written == slot), None)
            if (
                isinstance(node, ComponentNode)
                and output
                and tuple(node.reads.values()) == ("request.prompt",)
            ):
                return _Way(node, output, denoise)
    raise _unfit(
        card, f"no loop of semantics {card.recipe.assumes_loop} reads, as {COND}, what encodes the prompt"
    )


def _tensor(value: Tensor | str) -> Tensor:
    assert isinstance(value, Tensor), "embeddings are a tensor"
    return value


def _unfit(card: ModelCard, rule: str) -> TrainError:
    return TrainError(
        "FV704",
        name=f"model {card.model_id}",
        rule=f"cannot be trained: {rule}",
        remedy="Train a model of a generic flow loop, or give its loop an `at` (docs/architecture.md).",
    )
