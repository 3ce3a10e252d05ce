"""Clips and captions as the model has them: its own encoders, and the keys of what they give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Final

import torch
from torch import Tensor

from fv_core.cache import CacheKey, ValueRef
from fv_core.card import ModelCard
from fv_core.errors import RunError, TrainError
from fv_core.loop import CallOutput, ResolvedCall
from fv_core.loop.work import Row, Static
from fv_core.program import ComponentNode
from fv_core.request import Numerics
from fv_core.runtime.execution.features import call_key
from fv_core.runtime.instance import ModelInstance

EMBEDS: Final = "embeds"
_POSTERIOR: Final = "posterior"
_NUMERICS: Final = Numerics.REFERENCE  # one sample per forward: what it comes to depends on no other


class Encoder:
    """The encoders of a resident model, each loaded when it is first needed.

    Args:
        instance: of the model; its autoencoder has the op `posterior`: row frames uint8 [F, height, width, 3]; outputs
            mean fp32 [C, f, h, w], normalised, and std of the same shape, which an autoencoder without one leaves out.
    """

    def __init__(self, instance: ModelInstance) -> None:
        self._instance = instance
        self._lock = Lock()

    @property
    def card(self) -> ModelCard:
        return self._instance.card

    def posterior_key(self, origin: Mapping[str, str | int | float | ValueRef]) -> CacheKey | None:
        """The key of a clip's posterior; `origin` is all that decides its pixels, geometry included.

        None: the autoencoder's weights were changed in this process, of which no file may tell another.

        Raises:
            TrainError: FV704, no loop decodes latents with an autoencoder.
        """
        return self._key(_autoencoder(self.card), _POSTERIOR, {}, origin)

    def embeds_key(self, caption: str) -> CacheKey | None:
        """The key of a caption's embeddings: that of a prompt which is served. None: as `posterior_key`.

        Raises:
            TrainError: FV704, no component encodes a prompt alone.
        """
        node = _text_node(self.card)
        (role,) = node.reads
        return self._key(node.component, node.op, node.static, {role: caption})

    def posterior(self, frames: Tensor, name: str) -> CallOutput:
        """`mean` and, where there is one, `std` of a clip; `name` is told if it fails.

        Raises:
            TrainError: FV704, the autoencoder has no op `posterior`.
            RunError: FV501, a number is not finite.
        """
        return self._call(_autoencoder(self.card), _POSTERIOR, {"frames": frames}, {}, name)

    def embeds(self, caption: str) -> CallOutput:
        """A caption's embeddings [L, D] under `EMBEDS`; notes tell how it was not taken as given.

        Raises:
            RunError: FV501, a number is not finite.
        """
        node = _text_node(self.card)
        (role,), (output,) = node.reads, node.writes
        found = self._call(node.component, node.op, {role: caption}, node.static, f"caption {caption!r}")
        return CallOutput(tensors={EMBEDS: found.tensors[output]}, notes=found.notes)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """A block after which the components that were loaded in it leave: one encoder is resident at a time."""
        before = self._instance.loaded
        try:
            yield
        finally:
            for component_id in self._instance.loaded:
                if component_id not in before:
                    self._instance.unload(component_id)

    def _key(
        self, component: str, op: str, static: Mapping[str, Static], rows: Mapping[str, Row]
    ) -> CacheKey | None:
        if component in self._instance.changed:
            return None
        key = call_key(self._instance, component, op, static=static, rows=rows, numerics=_NUMERICS)
        return replace(
            key, version=0
        )  # it counts the changes of other components too: those that are trained

    def _call(
        self,
        component: str,
        op: str,
        rows: Mapping[str, Tensor | str],
        static: Mapping[str, Static],
        name: str,
    ) -> CallOutput:
        call = ResolvedCall(rows=rows, static=static, caches=(), numerics=_NUMERICS)
        with self._lock, torch.no_grad():
            try:
                (returned,) = self._instance.component(component).forward_batch(op, [call])
            except KeyError as error:
                if error.args != (op,):
                    raise
                raise _unfit(self.card, f"component {component} has no operation {op}") from error
        output = replace(
            returned.output, tensors={name: one.cpu() for name, one in returned.output.tensors.items()}
        )
        for tensor in output.tensors.values():
            if not bool(torch.isfinite(tensor).all()):
                raise RunError(
                    "FV501",
                    name=f"{op} of {name}",
                    rule="must be finite but holds NaN or infinity",
                    remedy="Nothing of it was stored. Look at the file, or encode in a wider precision.",
                )
        return output


def _text_node(card: ModelCard) -> ComponentNode:
    for node in card.programs[card.capabilities[0]].nodes:
        if isinstance(node, ComponentNode) and tuple(node.reads.values()) == ("request.prompt",):
            return node
    raise _unfit(card, "no component of its first task encodes the prompt alone")


def _autoencoder(card: ModelCard) -> str:
    for spec in card.loops.values():
        if spec.semantics.startswith("vae.") and "vae" in spec.binds:
            return spec.binds["vae"]
    raise _unfit(card, "no loop decodes latents with an autoencoder")


def _unfit(card: ModelCard, rule: str) -> TrainError:
    return TrainError(
        "FV704",
        name=f"model {card.model_id}",
        rule=f"cannot be trained on clips: {rule}",
        remedy="Train a model whose autoencoder has the operation `posterior` (docs/training-data.md).",
    )
