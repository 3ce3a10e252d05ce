"""What `fv parity certify` does and tells."""

from __future__ import annotations

from pathlib import Path

import click

from fv_core.card.certificate import Certificate, Verdict
from fv_core.cli.output import Out
from fv_core.cli.parity_check import figures_json
from fv_core.cli.parity_run import Run, observing
from fv_core.media.atomic import refusing
from fv_core.runtime.records.ledger import own_ledger


def certify_model(model_id: str, into: Path | None, run: Run, out: Out) -> None:
    """Raises:
    FvError: whatever keeps it from being measured; FV315 or FV403 the ledger cannot be written.
    """
    card, ledger = run.card(model_id), own_ledger() if into is None else into
    from fv_core.parity.certificates import certify, write  # after the cheap refusals: loads torch

    with run.engine(card, out) as engine, observing(out, model_id) as observe:
        certificates = certify(engine, model_id, observer=observe)
    with refusing(ledger):
        written = [(one, write(one, ledger)) for one in certificates]
    ok = all(one.verdict is Verdict.PASSED for one in certificates)
    if run.as_document:
        told = [_certificate_json(one, path) for one, path in written]
        out.document({"model": model_id, "ok": ok, "certificates": told})
    else:
        for one, path in written:
            out.path(path)
            out.notice(f"{one.rung} {one.verdict}: {_compared(one)}")
    if not ok:
        raise click.exceptions.Exit(1)


def _compared(one: Certificate) -> str:
    return f"{len(one.requests)} requests in {one.dtype} against {one.reference} {one.reference_version}"


def _certificate_json(one: Certificate, path: Path) -> dict[str, object]:
    return {
        "rung": one.rung,
        "verdict": one.verdict,
        "path": str(path),
        "figures": figures_json(one.figures),
        "tolerance": one.tolerance,
        "seal": one.seal,
    }
