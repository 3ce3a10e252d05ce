"""The reference of a card's claim: found, checked to be the claimed version, and run over the card's own modules."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from fv_core.card import ModelCard, ParitySpec
from fv_core.errors import ParityError
from fv_core.parity.recording import copied
from fv_core.plugins.reference import resolve_reference
from fv_core.request import ResolvedRequest
from fv_core.runtime.environment import environment
from fv_core.runtime.instance import ModelInstance


def claim_of(card: ModelCard) -> ParitySpec:
    """The card's claim, which names a runner.

    Raises:
        ParityError: FV603, it makes no claim or names no runner.
    """
    if card.parity is None or not card.parity.runner:
        raise ParityError(
            "FV603",
            name=f"model {card.model_id}",
            rule="claims no parity" if card.parity is None else "names no runner of its reference",
            remedy="`--record FILE` and `--against FILE` compare its own runs.",
        )
    return card.parity


def run_reference(
    instance: ModelInstance, request: ResolvedRequest, inputs: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The reference's taps in order, on the CPU. All of the card's components are loaded.

    Args:
        inputs: the request's, by slot ("request.image").

    Raises:
        ParityError: FV603 there is none, FV604 it is not the claimed version, or it raised.
        PluginError: FV105, the runner does not resolve.
    """
    card = instance.card
    claim = claim_of(card)
    _check_version(instance, claim)
    runner = resolve_reference(claim.runner, owner=f"{card.model_id} parity runner")
    components = {name: instance.component(name) for name in card.components}
    try:
        with torch.no_grad():
            taps: Mapping[str, Tensor] = runner(components, card, request, inputs)
    except Exception as error:
        raise _unavailable(claim, None, f"raised {type(error).__name__}: {error}") from error
    return {name: copied(tensor) for name, tensor in taps.items()}


def _check_version(instance: ModelInstance, claim: ParitySpec) -> None:
    dist = claim.reference.partition(".")[0]
    here = environment(instance.card, instance.device).versions.get(dist, "absent")
    if here != claim.reference_version:
        raise _unavailable(claim, here, "is not the version that the card claims parity with")


def _unavailable(claim: ParitySpec, version: str | None, rule: str) -> ParityError:
    return ParityError(
        "FV604",
        name=f"reference {claim.reference}",
        value=version,
        rule=rule,
        legal=claim.reference_version,
        remedy=f"Install {claim.reference.partition('.')[0]} {claim.reference_version}; FV_DEBUG=1 shows a traceback.",
    )
