"""What one `fv generate` asks for: settled against the card before torch is loaded, from options or a sidecar."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fv_core.card import ModelCard
from fv_core.cli.options import Options
from fv_core.cli.values import adapter, settings
from fv_core.errors import RequestError
from fv_core.plugins import find_card
from fv_core.request import Modality, ModalPart, Numerics, Request, ResolvedRequest, TaskType
from fv_core.runtime.device import check_device, check_dtype
from fv_core.runtime.models import default_model
from fv_core.runtime.requests.resolve import as_stated, resolve

if TYPE_CHECKING:
    from pathlib import Path

    from fv_core.media import Sidecar


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Requests of one card, with their settled values, and where to run them.

    Args:
        device: a device name, "auto" included.
        dtype: a precision of the card, or "auto".
        scale: the factor that frames are enlarged by.
        recorded: the sidecar that is repeated.
    """

    card: ModelCard
    requests: tuple[Request, ...]
    settled: tuple[ResolvedRequest, ...]
    device: str
    dtype: str
    scale: int
    recorded: Sidecar | None = None


def asked(options: Options) -> Asked:
    """Raises:
    FvError: the model is unknown, a value is not legal, or the sidecar cannot be repeated.
    """
    check_device(options.device)
    found = _stated(options) if options.repeat is None else _repeated(options, options.repeat)
    check_dtype(found.dtype, found.card)
    return found


def _stated(options: Options) -> Asked:
    card = default_model() if options.model is None else find_card(options.model)
    request = Request(
        prompt=options.prompt or "",
        model=card.model_id,
        task=None if options.task is None else TaskType(options.task),
        negative_prompt=options.negative,
        seed=options.seed,
        size=options.size,
        frames=options.frames,
        fps=options.fps,
        steps=options.steps,
        guidance=options.guidance,
        numerics=None if options.numerics is None else Numerics(options.numerics),
        inputs=tuple(
            ModalPart(modality=modality, path=path)
            for modality in Modality
            for path in getattr(options, modality.value)
        ),
        adapters=tuple(map(adapter, options.lora)),
        params=settings(options.set, card),
    )
    first = resolve(request, card, Numerics.EXACT).seed
    requests = tuple(replace(request, seed=first + clip) for clip in range(options.n))
    return _asked(card, requests, device=options.device, dtype=options.dtype, scale=options.scale)


def _repeated(options: Options, file: Path) -> Asked:
    from fv_core.media import read_sidecar  # loads numpy

    recorded = read_sidecar(file)
    used = recorded.used
    card = find_card(used.model_folder or recorded.request.model)
    if card.digest() != used.card_digest:
        raise RequestError(
            "FV311",
            name="sidecar",
            value=str(file),
            rule=f"was made by another card {card.model_id}: digest {used.card_digest} then, {card.digest()} now",
            remedy=f"Install {used.plugin or 'the plugin'} as it was, or make the clip anew.",
        )
    then = {"device": used.environment.device, "dtype": used.dtype, "scale": recorded.scale}
    where: dict[str, Any] = then | {name: getattr(options, name) for name in then if name in options.flags}
    return _asked(card, (as_stated(recorded.request),), **where, recorded=recorded)


def _asked(
    card: ModelCard,
    requests: tuple[Request, ...],
    *,
    device: str,
    dtype: str,
    scale: int,
    recorded: Sidecar | None = None,
) -> Asked:
    settled = tuple(resolve(request, card, Numerics.EXACT) for request in requests)
    return Asked(
        card=card,
        requests=requests,
        settled=settled,
        device=device,
        dtype=dtype,
        scale=scale,
        recorded=recorded,
    )
