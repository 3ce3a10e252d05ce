"""What `fv parity gate` does and tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fv_core.cli.output import Out
from fv_core.cli.parity_run import Run
from fv_core.cli.progress import waiting

if TYPE_CHECKING:
    from fv_core.card import ModelCard
    from fv_core.parity.trial import GateResult

_HEADER = ("MODEL", "GATE", "STATE", "FIGURE", "OF", "COUNTED", "DETAIL")


def run_gates(model_ids: Sequence[str], run: Run, out: Out) -> None:
    """Raises:
    FvError: a model is unknown or cannot be loaded.
    """
    cards = [run.card(model_id) for model_id in dict.fromkeys(model_ids)]
    found = {card.model_id: list(_results(card, run, out)) for card in cards}
    ok = all(one.figure == 0 and one.state == "passed" for results in found.values() for one in results)
    if run.as_document:
        models = [
            {"model": model, "gates": [asdict(one) for one in results]} for model, results in found.items()
        ]
        out.document({"ok": ok, "models": models})
    else:
        out.table(_HEADER, [_cells(model, one) for model, results in found.items() for one in results])
    if not ok:
        raise click.exceptions.Exit(1)


def _results(card: ModelCard, run: Run, out: Out) -> Iterator[GateResult]:
    with waiting(out, f"{card.model_id}: starting") as tell:
        from fv_core.parity.suite import Suite  # takes seconds
        from fv_core.parity.trial import Trial

        with Trial(card, device=run.device, dtype=run.dtype, weights=run.weights) as trial:
            for count, result in enumerate(Suite(trial).results(), 1):
                tell(f"{card.model_id}: {count} gates done, {result.gate} {result.state}")
                if run.as_events:
                    out.event("parity.gate", {"model": card.model_id, **asdict(result)})
                yield result


def _cells(model: str, one: GateResult) -> tuple[str, ...]:
    return model, one.gate, one.state, str(one.figure), str(one.of), one.counted, one.detail
