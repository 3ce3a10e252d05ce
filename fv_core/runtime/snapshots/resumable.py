"""What a snapshot binds, and whether it goes on here: everything it ran on, and a request that its card still takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fv_core.card import ModelCard
from fv_core.extend.chain import Enabled
from fv_core.request import ResolvedRequest
from fv_core.runtime.environment import environment
from fv_core.runtime.extensions import check_extensions
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.records import provenance
from fv_core.runtime.requests.inputs import Inputs
from fv_core.runtime.requests.resolve import as_stated, settle
from fv_core.runtime.run import RequestRun
from fv_core.runtime.snapshots.snapshot import SnapshotHeader, mismatch


def header_of(run: RequestRun) -> SnapshotHeader:
    """The header of a run as it stands between two steps."""
    instance = run.instance
    return SnapshotHeader(
        request_id=run.id,
        request=run.request,
        card_digest=instance.digest,
        plugin=provenance.plugin_name(instance),
        weights=provenance.weights_name(instance),
        dtype=provenance.dtype_name(instance),
        environment=environment(instance.card, instance.device),
        finished=run.finished,
        turn=run.turn,
        extensions=tuple(map(str, run.extensions)),
        notes=run.notes,
    )


def check_fits(header: SnapshotHeader, instance: ModelInstance, extensions: Sequence[Enabled]) -> None:
    """Refuses what did not run on this instance with these extensions, or asks for what the card does not take.

    Raises:
        RunError: FV504.
        RequestError: FV301 to FV314, as for any request.
    """
    here = {
        "card_digest": instance.digest,
        "plugin": provenance.plugin_name(instance),
        "weights": provenance.weights_name(instance),
        "dtype": provenance.dtype_name(instance),
        "extensions": tuple(map(str, extensions)),
    }
    device, then = instance.device.type, header.environment.device
    if then != device:
        raise mismatch("device", then, f"is not that of this engine ({device})")
    for name, value in here.items():
        if getattr(header, name) != value:
            raise mismatch(name, getattr(header, name), f"is not that of this engine ({value})")
    _check_request(header.request, instance.card, extensions)


def _check_request(stored: ResolvedRequest, card: ModelCard, extensions: Sequence[Enabled]) -> None:
    """A file may have been edited: its request is settled anew, and must come out as it is."""
    brought = Inputs(used=stored.inputs)  # their contents are in the snapshot
    settled = settle(as_stated(stored), card, stored.numerics, brought).request
    check_extensions(extensions, card, settled.numerics)
    if replace(settled, adjusted=stored.adjusted) != stored:
        raise mismatch("request", None, f"is not one that {card.model_id} settles")
