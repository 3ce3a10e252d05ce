"""Whether a resident model is what was certified, and a run one that its certificates cover.

Compared are its weights with the files beside them, its precision, what was measured, and the environment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from torch import Tensor

from fv_core.cache.stores import value_ref
from fv_core.card.certificate import Certificate
from fv_core.errors import ParityError
from fv_core.extend.chain import Enabled
from fv_core.request import Numerics, ResolvedRequest
from fv_core.runtime.environment import differences, environment
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.records.ledger import Standing, claimed_rungs, rung_standing
from fv_core.runtime.records.probes import as_measured, probes
from fv_core.runtime.records.provenance import dtype_name
from fv_core.runtime.requests.resolve import settle
from fv_core.weights.pull_record import digest_of
from fv_core.weights.store import plain_files


def weights_hash(instance: ModelInstance) -> str:
    """sha256 over all that a folder or a seed gave the model; loads the components.

    Names, shapes, types and bytes of every component's parameters and persistent buffers, and the bytes of every file
    beside the tensors.
    """
    whole, folder = hashlib.sha256(), instance.folder
    for component in sorted(instance.card.components):
        for name, tensor in sorted(instance.component(component).module.state_dict().items()):
            if isinstance(tensor, Tensor):
                whole.update(f"{component}.{name}={value_ref(tensor).hash}\n".encode())
    if folder is not None:
        for path in plain_files(instance.card, folder):
            whole.update(f"{path.relative_to(folder).as_posix()}={digest_of(path, 'sha256')}\n".encode())
    return whole.hexdigest()


def standings_here(instance: ModelInstance) -> tuple[Standing, ...]:
    """Each claimed rung, on this machine with these weights.

    Raises:
        ParityError: FV602, the card claims a rung that fv cannot measure.
    """
    weights = weights_hash(instance)

    @cache
    def requests() -> tuple[ResolvedRequest, ...]:
        return tuple(
            settle(as_measured(one), instance.card, Numerics.REFERENCE).request
            for one in probes(instance.card)
        )

    def machine(certificate: Certificate) -> Iterator[str]:
        yield from _misfits_here(certificate, instance, weights)
        if _plain(certificate.requests) != _plain(requests()):
            yield "requests: others were certified than the probes of the card"

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


def check_covered(enabled: Sequence[Enabled], request: ResolvedRequest | None = None) -> None:
    """Whether certificates tell anything of a run: they promise the plain model's bits.

    Raises:
        ParityError: FV606, an interceptor or an adapter alters the distribution, or the numerics let neighbours change
            bits.
    """
    altering = [one.spec.id for one in enabled if one.spec.distribution_altering]
    if altering:
        raise _uncovered("extensions", ", ".join(altering), "alters what was certified", "none that alters")
    if request is not None and request.adapters:
        paths = ", ".join(one.path for one in request.adapters)
        raise _uncovered("adapters", paths, "alter what was certified", "none")
    if request is not None and request.numerics is Numerics.FAST:
        legal = ", ".join(each for each in Numerics if each is not Numerics.FAST)
        raise _uncovered(
            "numerics", request.numerics.value, "promises no bits, which are what was certified", legal
        )


def _uncovered(name: str, value: str, rule: str, legal: str) -> ParityError:
    return ParityError(
        "FV606",
        name=name,
        value=value,
        rule=rule,
        legal=legal,
        remedy="Change it, or run without requiring certificates.",
    )


def _plain(requests: Sequence[ResolvedRequest]) -> list[ResolvedRequest]:
    """Without the notes for people."""
    return [replace(one, adjusted=()) for one in requests]


def _misfits_here(certificate: Certificate, instance: ModelInstance, weights: str) -> Iterator[str]:
    if certificate.weights != weights:
        yield f"weights: {certificate.weights} were certified, these are {weights}"
    if certificate.dtype != dtype_name(instance):
        yield f"precision: {certificate.dtype} was certified, this is {dtype_name(instance)}"
    now = environment(instance.card, instance.device)
    yield from (f"environment: {one}" for one in differences(certificate.environment, now))
