"""Certificates: what was measured of a parity claim, sealed, and what is wrong with one as it stands.

The seals keep no secret: they show an edited or damaged file, and which part of it. What binds a certificate to a
machine is compared with the machine itself, where the weights are loaded.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import cast

from fv_core import codec
from fv_core.card.card import ModelCard, Rung
from fv_core.codec import JSON
from fv_core.request import Environment, ResolvedRequest

_UNSEALED = ("type", "parts", "seal")


class Verdict(StrEnum):
    """What a measurement came to."""

    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The taps of one name over all steps: how many were compared, and the largest absolute difference in them.

    `max_abs_diff` is NaN where something could not be compared: absent, of another shape or type, or not finite.
    """

    taps: str
    compared: int
    max_abs_diff: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One rung of one card, measured in one environment.

    Args:
        model, card_digest: the card. plugin: the distribution that brought it, with its version.
        code: sha256 over the sources that compute the card's results.
        weights: sha256 over every component's parameters and persistent buffers, and the files beside its tensors.
        dtype: precision of the run.
        environment: device, threads and library versions.
        reference, reference_version: what it was compared with.
        requests: what was run.
        figures, tolerance, verdict: passed where every figure is finite and no larger than the tolerance.
        parts: sha256 of each field above that has not its default, by name.
        seal: sha256 of all of it.
    """

    model: str
    card_digest: str
    plugin: str
    weights: str
    dtype: str
    environment: Environment
    reference: str
    reference_version: str
    rung: Rung
    requests: tuple[ResolvedRequest, ...]
    figures: tuple[Figure, ...]
    tolerance: float
    verdict: Verdict
    code: str = ""
    parts: Mapping[str, str]
    seal: str

    def to_json(self) -> str:
        """For people and files; `from_json` gives an equal certificate back."""
        return json.dumps(codec.encode(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Raises:
        ValueError: the text is not a certificate.
        """
        try:
            return codec.decode(cls, json.loads(text))
        except RecursionError:
            raise ValueError("its brackets are nested without end") from None


def verdict_of(figures: tuple[Figure, ...], tolerance: float) -> Verdict:
    """Passed only where every figure compared something and is a finite difference within the tolerance."""
    within = bool(figures) and all(_within(figure, tolerance) for figure in figures)
    return Verdict.PASSED if within else Verdict.FAILED


def _within(figure: Figure, tolerance: float) -> bool:
    size = figure.max_abs_diff
    return figure.compared > 0 and math.isfinite(size) and 0 <= size <= tolerance


def sealed(certificate: Certificate) -> Certificate:
    """The certificate with its seals made anew."""
    parts = _parts(certificate)
    return replace(certificate, parts=parts, seal=_sha256(codec.canonical({**parts})))


def edits(certificate: Certificate) -> Iterator[str]:
    """What was changed after sealing, a sentence each."""
    now = sealed(certificate)
    for name in sorted(now.parts.keys() | certificate.parts.keys()):
        if certificate.parts.get(name) != now.parts.get(name):
            yield f"{name} was edited after sealing"
    if certificate.seal != now.seal:
        yield "the seal is broken"
    elif certificate.verdict is not verdict_of(certificate.figures, certificate.tolerance):
        yield f"the verdict {certificate.verdict} does not follow from the figures"


def misfits(certificate: Certificate, card: ModelCard, plugin: str, code: str) -> Iterator[str]:
    """Why it does not certify `card` as `plugin` brings it and `code` computes it, a sentence each.

    Needs neither weights nor device.
    """
    yield from edits(certificate)
    for name, then, now in (
        ("model", certificate.model, card.model_id),
        ("card", certificate.card_digest, card.digest()),
        ("plugin version", certificate.plugin, plugin),
        ("code", certificate.code, code),
        *_claimed(certificate, card),
    ):
        if then != now:
            yield f"{name}: {then or 'none'} was certified, this is {now or 'none'}"
    if card.parity is not None and not certificate.tolerance <= card.parity.tolerance:
        yield f"tolerance: {certificate.tolerance:g} was allowed, the card allows {card.parity.tolerance:g}"
    if certificate.verdict is not Verdict.PASSED:
        yield f"verdict: {certificate.verdict}"


def _claimed(certificate: Certificate, card: ModelCard) -> Iterator[tuple[str, str, str]]:
    if (claim := card.parity) is not None:
        yield "reference", certificate.reference, claim.reference
        yield "reference version", certificate.reference_version, claim.reference_version


def _parts(certificate: Certificate) -> dict[str, str]:
    told = cast(dict[str, JSON], codec.sparse(certificate))
    return {name: _sha256(codec.canonical(part)) for name, part in told.items() if name not in _UNSEALED}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
