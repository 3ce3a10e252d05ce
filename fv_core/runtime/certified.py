"""Whether a resident model is what was certified: its weights, its precision, and the environment it runs in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from fv_core.cache.stores import value_ref
from fv_core.card.certificate import Certificate
from fv_core.errors import ParityError
from fv_core.runtime.environment import differences, environment
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.ledger import Standing, claimed_rungs, rung_standing
from fv_core.runtime.provenance import dtype_name


def weights_hash(instance: ModelInstance) -> str:
    """sha256 over names, shapes, types and bytes of every component's parameters; loads the components."""
    whole = hashlib.sha256()
    for component in sorted(instance.card.components):
        for name, parameter in sorted(instance.component(component).module.named_parameters()):
            whole.update(f"{component}.{name}={value_ref(parameter).hash}\n".encode())
    return whole.hexdigest()


def standings_here(instance: ModelInstance) -> tuple[Standing, ...]:
    """Each claimed rung, on this machine with these weights.

    Raises:
        ParityError: FV602, the card claims a rung that fv cannot measure.
    """
    weights = weights_hash(instance)

    def machine(certificate: Certificate) -> Iterator[str]:
        return _misfits_here(certificate, instance, weights)

    return tuple(rung_standing(instance.card, rung, machine) for rung in claimed_rungs(instance.card))


def require_certified(instance: ModelInstance) -> None:
    """Raises:
    ParityError: FV601 a claimed rung is not certified here, or none is claimed; FV602 as `standings_here`.
    """
    found = standings_here(instance)
    lacking = [f"{one.rung}: {', '.join(one.reasons)}" for one in found if not one.certified]
    if found and not lacking:
        return
    raise ParityError(
        "FV601",
        name=f"model {instance.card.model_id}",
        rule=f"is not certified here: {'; '.join(lacking) or 'its card claims no parity'}",
        remedy=f"`fv parity certify {instance.card.model_id}` measures a claim and writes its certificates.",
    )


def _misfits_here(certificate: Certificate, instance: ModelInstance, weights: str) -> Iterator[str]:
    if certificate.weights != weights:
        yield f"weights: {certificate.weights} were certified, these are {weights}"
    if certificate.dtype != dtype_name(instance):
        yield f"precision: {certificate.dtype} was certified, this is {dtype_name(instance)}"
    now = environment(instance.card, instance.device)
    yield from (f"environment: {one}" for one in differences(certificate.environment, now))
