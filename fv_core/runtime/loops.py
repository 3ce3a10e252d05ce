"""From a card's loop to the object that drives it."""

from __future__ import annotations

from typing import Any

from fv_core.card import LoopSpec, ModelCard
from fv_core.errors import CardError
from fv_core.loop import Loop
from fv_core.plugins.reference import resolve_reference


def build_loop(card: ModelCard, loop_id: str) -> Loop[Any, Any]:
    """Raises:
    CardError: FV202 the class has not the semantics, FV204 its roles are not bound, FV206 its parameters are not
        legal.
    """
    spec = card.loops[loop_id]
    factory = resolve_reference(spec.loop, owner=f"{card.model_id} loop {loop_id}")
    _check_semantics(card, loop_id, spec, factory.semantics)
    loop: Loop[Any, Any] = factory(card, spec)
    return loop


def _check_semantics(card: ModelCard, loop_id: str, spec: LoopSpec, offered: tuple[str, ...]) -> None:
    if spec.semantics not in offered:
        raise CardError(
            "FV202",
            name=f'card "{card.model_id}": loops.{loop_id}.semantics',
            value=spec.semantics,
            rule=f"is not offered by {spec.loop}",
            legal=", ".join(offered),
            remedy="Name one of these, or another loop class.",
        )
