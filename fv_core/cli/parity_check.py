"""What `fv parity check` does and tells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fv_core.card import ModelCard
from fv_core.card.certificate import Figure, Verdict
from fv_core.cli.output import Out
from fv_core.cli.parity_run import Run, observing
from fv_core.media.atomic import refusing
from fv_core.media.output import check_free
from fv_core.runtime.records.ledger import Standing, implemented

if TYPE_CHECKING:
    from fv_core.parity.aligner import Divergence
    from fv_core.parity.ladder import Measurement


def check_reference(model_id: str, rungs: Sequence[str], run: Run, out: Out) -> None:
    """Raises:
    FvError: whatever keeps it from being measured.
    """
    card, wanted = run.card(model_id), tuple(map(implemented, rungs))
    from fv_core.parity.ladder import measure  # after the cheap refusals: loads torch
    from fv_core.runtime.records.certified import standings_here

    with run.engine(card, out) as engine, observing(out, model_id) as observe:
        measured = measure(engine, model_id, wanted, observer=observe)
        standings = standings_here(engine.instance(model_id))
    _tell(card, measured, standings, run, out)


def check_against(model_id: str, file: Path, rungs: Sequence[str], run: Run, out: Out) -> None:
    """Raises:
    FvError: whatever keeps it from being compared; FV605 the file is no recording of this model.
    """
    card, wanted = run.card(model_id), tuple(map(implemented, rungs))
    from fv_core.parity.ladder import measure_against
    from fv_core.parity.recording import Recording, not_readable

    recording = Recording.load(file)
    if (then := recording.facts.request.model) != model_id:
        raise not_readable(file, f"it is a run of {then}, not of {model_id}")
    if recording.facts.card_digest != card.digest():
        out.notice(f"{file} is a run of another card {model_id}: {recording.facts.card_digest}")
    with run.engine(card, out) as engine, observing(out, model_id) as observe:
        measured = measure_against(engine, recording, wanted, observer=observe)
    _tell(card, measured, (), run, out)


def record_run(model_id: str, file: Path, run: Run, out: Out) -> None:
    """Raises:
    FvError: whatever ended the run; FV315 the file is there or cannot be written.
    """
    card = run.card(model_id)
    with refusing(file):
        check_free(file, force=False)
    from fv_core.parity.taps import record
    from fv_core.runtime.records.probes import probes

    with run.engine(card, out) as engine, observing(out, model_id) as observe:
        recording = record(engine, probes(card)[0], observer=observe)
    with refusing(file):
        recording.save(file)
    if run.as_document:
        out.document({"model": model_id, "path": str(file), "taps": list(recording.taps)})
    else:
        out.path(file)


def figures_json(figures: Sequence[Figure]) -> list[dict[str, object]]:
    """Figures for JSON, which has no NaN: null is what could not be compared."""
    return [{**asdict(one), "max_abs_diff": number_json(one.max_abs_diff)} for one in figures]


def number_json(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _tell(
    card: ModelCard, measured: Sequence[Measurement], standings: Sequence[Standing], run: Run, out: Out
) -> None:
    ok = all(one.verdict is Verdict.PASSED for one in measured)
    if run.as_document:
        certified = [_standing_json(one) for one in standings]
        rungs = [_measured_json(one) for one in measured]
        out.document({"model": card.model_id, "ok": ok, "rungs": rungs, "certified": certified})
    else:
        rows = [(one.rung, *_cells(figure, one.tolerance)) for one in measured for figure in one.figures]
        out.table(("RUNG", "TAPS", "COMPARED", "LARGEST DIFFERENCE", "VERDICT"), rows)
        for one in measured:
            if one.first is not None:
                out.lines(f"{one.rung} parts first at {one.first}")
        out.lines(*map(_standing_line, standings))
    if not ok:
        raise click.exceptions.Exit(1)


def _cells(figure: Figure, tolerance: float) -> tuple[str, str, str, str]:
    largest = figure.max_abs_diff
    shown = "not comparable" if math.isnan(largest) else f"{largest:.3g}"
    verdict = Verdict.PASSED if largest <= tolerance else Verdict.FAILED
    return figure.taps, str(figure.compared), shown, verdict


def _standing_line(standing: Standing) -> str:
    if standing.certified:
        return f"{standing.rung} is certified here by {standing.path}"
    return f"{standing.rung} is not certified here: {'; '.join(standing.reasons)}"


def _measured_json(one: Measurement) -> dict[str, object]:
    return {
        "rung": one.rung,
        "verdict": one.verdict,
        "tolerance": one.tolerance,
        "requests": len(one.requests),
        "figures": figures_json(one.figures),
        "first": None if one.first is None else _divergence_json(one.first),
    }


def _divergence_json(one: Divergence) -> dict[str, object]:
    return {**asdict(one), "max_abs_diff": number_json(one.max_abs_diff)}


def _standing_json(one: Standing) -> dict[str, object]:
    path = None if one.path is None else str(one.path)
    return {"rung": one.rung, "certified": one.certified, "path": path, "reasons": list(one.reasons)}
