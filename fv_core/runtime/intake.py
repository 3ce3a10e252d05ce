"""From a request to what runs it: its card, its settled values, what it will take, a model to run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from fv_core.card import ModelCard
from fv_core.errors import PluginError
from fv_core.extend import InterceptorSpec
from fv_core.plugins import find_card
from fv_core.plugins.model_folder import model_folder
from fv_core.program import LoopNode
from fv_core.request import Numerics, Request, ResolvedRequest
from fv_core.runtime.device import pick_device, pick_dtype
from fv_core.runtime.engine_options import (
    by_id,
    checked_models,
    checked_offload,
    checked_request,
    checked_weights,
    valid,
)
from fv_core.runtime.estimate import RunPlan, plan_run
from fv_core.runtime.extensions import Extension, check_extensions, check_recipe, enable
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.runtime.models import default_model
from fv_core.runtime.records.certified import check_covered
from fv_core.runtime.requests.params import build_loops, check_params
from fv_core.runtime.requests.resolve import Settled, checked_numerics, settle
from fv_core.runtime.requests.usual import usual


class Intake:
    """An engine's options that requests meet before anything of them runs. Arguments as `Engine`."""

    def __init__(
        self,
        models: str | ModelCard | Sequence[str | ModelCard],
        *,
        device: str,
        dtype: str,
        weights: str | Path | None,
        offload: str,
        extensions: str | InterceptorSpec | Sequence[Extension],
        numerics: Numerics | str,
        certified: bool,
    ) -> None:
        cards = [
            valid(model) if isinstance(model, ModelCard) else find_card(model)
            for model in checked_models(models)
        ]
        self._cards = by_id(cards)
        self.device = pick_device(device)
        self._dtype = dtype
        self.weights = checked_weights(weights, cards)
        self._offload = checked_offload(offload, self.device)
        self.extensions = enable(extensions)
        for card in cards:
            check_recipe(self.extensions, card)
        self._numerics = checked_numerics(numerics)
        self.certified = certified
        if certified:
            check_covered(self.extensions)

    def numerics(self, asked: Numerics | str | None) -> Numerics:
        """What a request that does not say gets; None: the engine's own."""
        return self._numerics if asked is None else checked_numerics(asked)

    def settled(self, request: Request, numerics: Numerics | str | None = None) -> tuple[ModelCard, Settled]:
        """The request's card and the request with every value settled.

        Raises:
            FvError: it is refused.
        """
        card = self.card(checked_request("request", request).model)
        settled = settle(request, card, self.numerics(numerics))
        self.check_covered(settled.request)
        check_extensions(self.extensions, card, settled.request.numerics)
        return card, replace(settled, request=check_params(settled.request, card, build_loops(card)))

    def check_covered(self, request: ResolvedRequest) -> None:
        """Raises:
        ParityError: FV606, the engine runs what is certified alone, and this is not.
        """
        if self.certified:
            check_covered(self.extensions, request)

    def card(self, model_id: str | None) -> ModelCard:
        """Raises:
        PluginError: FV101, it is none of the engine's.
        """
        if model_id is None:
            return next(iter(self._cards.values())) if self._cards else default_model()
        if model_id in self._cards or not self._cards:
            return self._cards.get(model_id) or find_card(model_id)
        if model_folder(model_id) is not None and (own := self._cards.get(find_card(model_id).model_id)):
            return own
        raise PluginError(
            "FV101",
            name="model",
            value=model_id,
            rule="is not one that this engine was made for",
            legal=", ".join(self._cards),
            remedy="Name it in Engine(models=[...]).",
        )

    def plan(self, instance: ModelInstance, settled: ResolvedRequest) -> RunPlan:
        """What the request will take on the instance, without its adapters."""
        card = instance.card
        loops = build_loops(card)
        nodes = card.programs[settled.task].active(settled)
        steps = sum(loops[node.loop].total(settled) if isinstance(node, LoopNode) else 1 for node in nodes)
        size = self.dtype(card).itemsize
        return plan_run(
            card,
            settled,
            weigh=instance.component_bytes,
            steps=steps,
            dtype_bytes=size,
            offload=instance.offload.value,
        )

    def dtype(self, card: ModelCard) -> torch.dtype:
        """The precision that the card runs at here."""
        return pick_dtype(self._dtype, card, self.device)

    def offload(self, sketch: ModelInstance, capacity: int) -> Offload:
        """Where the components of a card rest.

        Args:
            sketch: an instance of it, of which nothing is loaded.
            capacity: bytes that the device has for it.
        """
        card = sketch.card
        if self._offload != "auto":
            return Offload(self._offload)
        if self.device.type == "cpu":
            return Offload.NONE
        plan = self.plan(sketch, usual(card, card.capabilities[0], self._numerics))
        return Offload.COMPONENT if plan.peak_bytes > capacity else Offload.NONE
