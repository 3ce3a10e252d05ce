"""Certifying: every claimed rung measured, sealed with what it was measured on, and written to a ledger."""

from __future__ import annotations

import os
from pathlib import Path

from fv_core.card.certificate import Certificate, sealed
from fv_core.parity.ladder import Measurement, measure
from fv_core.parity.reference import claim_of
from fv_core.runtime.engine import Engine
from fv_core.runtime.environment import environment, environment_hash
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.job import Observer
from fv_core.runtime.records.certified import weights_hash
from fv_core.runtime.records.ledger import file_name
from fv_core.runtime.records.provenance import dtype_name, plugin_name
from fv_core.runtime.records.sources import code_hash


def certify(engine: Engine, model_id: str, *, observer: Observer | None = None) -> tuple[Certificate, ...]:
    """A certificate of each claimed rung, the verdict of one that failed included.

    Raises:
        FvError: as `ladder.measure`.
    """
    measured = measure(engine, model_id, observer=observer)
    instance = engine.instance(model_id)
    weights = weights_hash(instance)
    return tuple(_certificate(instance, weights, one) for one in measured)


def write(certificate: Certificate, folder: Path) -> Path:
    """Puts the certificate into a ledger, in place of an earlier one of the same rung and environment.

    Raises:
        OSError: it cannot be written there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(certificate.model, certificate.rung, environment_hash(certificate.environment))
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(certificate.to_json())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _certificate(instance: ModelInstance, weights: str, measured: Measurement) -> Certificate:
    claim = claim_of(instance.card)
    return sealed(
        Certificate(
            model=instance.card.model_id,
            card_digest=instance.card.digest(),
            plugin=plugin_name(instance),
            code=code_hash(instance.card),
            weights=weights,
            dtype=dtype_name(instance),
            environment=environment(instance.card, instance.device),
            reference=claim.reference,
            reference_version=claim.reference_version,
            rung=measured.rung,
            requests=measured.requests,
            figures=measured.figures,
            tolerance=measured.tolerance,
            verdict=measured.verdict,
            parts={},
            seal="",
        )
    )
