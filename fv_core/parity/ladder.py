"""The ladder: rungs of a card's claim, measured against its reference over the card's own modules.

C0 compares every component's outputs after the reference's inputs were put in place of fv's own before each step; C1
compares whole runs, each on its own way. The higher rungs are named, and refused until something measures them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fv_core.card import IMPLEMENTED, Rung
from fv_core.card.certificate import Figure, Verdict, verdict_of
from fv_core.parity.aligner import Alignment, Divergence, align
from fv_core.parity.recording import Recording
from fv_core.parity.reference import claim_of, run_reference
from fv_core.parity.taps import record
from fv_core.request import Numerics, ResolvedRequest
from fv_core.runtime.engine import Engine
from fv_core.runtime.job import Observer
from fv_core.runtime.records.ledger import claimed_rungs, implemented
from fv_core.runtime.records.probes import probes
from fv_core.runtime.requests.resolve import as_stated, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One rung over all requests that were run. `first` is the first divergence of the first that has one."""

    rung: Rung
    requests: tuple[ResolvedRequest, ...]
    figures: tuple[Figure, ...]
    tolerance: float
    first: Divergence | None

    @property
    def verdict(self) -> Verdict:
        return verdict_of(self.figures, self.tolerance)


def measure(
    engine: Engine,
    model_id: str,
    rungs: Sequence[str] = (),
    *,
    observer: Observer | None = None,
) -> tuple[Measurement, ...]:
    """Measures rungs of a card's claim, a measurement each; none named: all that it claims.

    Raises:
        ParityError: FV602 a rung is not implemented, FV603 the card names no reference to run, FV604 the reference
            is not the claimed version or raised.
        FvError: fv's own run failed.
    """
    instance = engine.instance(model_id)
    claim = claim_of(instance.card)
    wanted = tuple(map(implemented, rungs)) or claimed_rungs(instance.card)
    requests: list[ResolvedRequest] = []
    found: dict[Rung, list[Alignment]] = {rung: [] for rung in wanted}
    for request in probes(instance.card):
        run = partial(record, engine, request, observer=observer)
        mine = run()
        contents = settle(request, instance.card, Numerics.REFERENCE).inputs.contents
        inputs = {slot: torch.from_numpy(content) for slot, content in contents.items()}
        theirs = run_reference(instance, mine.facts.request, inputs)
        requests.append(mine.facts.request)
        for rung in wanted:
            taps = run(replay=theirs).taps if rung is Rung.COMPONENT else mine.taps
            found[rung].append(align_rung(rung, taps, theirs, claim.tolerance))
    return tuple(measurement(rung, requests, found[rung], claim.tolerance) for rung in wanted)


def measure_against(
    engine: Engine, recording: Recording, rungs: Sequence[str] = (), *, observer: Observer | None = None
) -> tuple[Measurement, ...]:
    """Runs a recorded request again and compares; no rung named: all that fv can measure.

    Raises:
        ParityError: FV602, a rung is not implemented.
        FvError: the run failed.
    """
    settled = recording.facts.request
    claim = engine.instance(settled.model).card.parity
    tolerance = 0.0 if claim is None else claim.tolerance
    measured = []
    for rung in tuple(map(implemented, rungs)) or IMPLEMENTED:
        replay = recording.taps if rung is Rung.COMPONENT else None
        mine = record(engine, as_stated(settled), replay=replay, observer=observer)
        found = align_rung(rung, mine.taps, recording.taps, tolerance)
        measured.append(measurement(rung, [settled], [found], tolerance))
    return tuple(measured)


def align_rung(
    rung: Rung, mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor], tolerance: float
) -> Alignment:
    """Compares the taps of one rung: what components returned, or what nodes made of it and the artifacts."""
    return align(_taps_of(rung, mine), _taps_of(rung, theirs), tolerance)


def measurement(
    rung: Rung, requests: Sequence[ResolvedRequest], found: Sequence[Alignment], tolerance: float
) -> Measurement:
    """What the alignments of several requests come to together."""
    return Measurement(
        rung=rung,
        requests=tuple(requests),
        figures=tuple(_together(found)),
        tolerance=tolerance,
        first=next((one.first for one in found if one.first is not None), None),
    )


def _taps_of(rung: Rung, taps: Mapping[str, Tensor]) -> dict[str, Tensor]:
    returned = rung is Rung.COMPONENT
    return {tap: tensor for tap, tensor in taps.items() if (tap.count("/") == 3) is returned}


def _together(found: Sequence[Alignment]) -> Iterator[Figure]:
    groups: dict[str, list[Figure]] = {}
    for figure in (figure for alignment in found for figure in alignment.figures):
        groups.setdefault(figure.taps, []).append(figure)
    for taps, figures in groups.items():
        sizes = [figure.max_abs_diff for figure in figures]
        largest = math.nan if any(map(math.isnan, sizes)) else max(sizes)
        yield Figure(taps=taps, compared=sum(figure.compared for figure in figures), max_abs_diff=largest)
