"""The run of `fv generate`: one engine, clip after clip, each written as soon as it is done."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fv_core.card import Method, ModelCard
from fv_core.cli.asked import Asked
from fv_core.cli.events import event_writer
from fv_core.cli.interrupt import interrupted, on_interrupt
from fv_core.cli.options import Options
from fv_core.cli.output import Out
from fv_core.cli.presence import Presence, presence
from fv_core.cli.progress import Progress, progress, waiting
from fv_core.cli.repeat import overruled, tell_differences, usable_device
from fv_core.cli.targets import Target
from fv_core.media import Clip
from fv_core.media.formats import format_of
from fv_core.plugins import all_cards
from fv_core.request import CancelScope, Request, RequestEvent, Started
from fv_core.weights.store import locate

if TYPE_CHECKING:
    from fv_core.runtime.engine import Engine


def make(asked: Asked, files: Sequence[Target], options: Options, out: Out) -> None:
    """Makes and writes every clip, and tells their paths and what was adjusted.

    Raises:
        FvError: whatever refused or ended a clip; the clips before it stay.
    """
    locate(asked.card, options.weights)  # before torch loads: that weights are absent is told at once
    with waiting(out, f"{asked.card.model_id}: starting"):
        from fv_core.runtime.engine import Engine  # takes seconds

    notices: dict[str, None] = {}  # in order, each once
    drawn = (*_drawn(asked, options), *overruled(asked, options))
    with Engine(
        [asked.card.model_id],
        device=usable_device(asked, options),
        dtype=asked.dtype,
        weights=options.weights,
        offload=options.offload,
        max_batch=options.max_batch,
        memory=options.memory,
        require_certified=options.require_certified,
    ) as engine:
        differences = tell_differences(asked, engine, out)
        for index, (request, target) in enumerate(zip(asked.requests, files, strict=True)):
            told = drawn if index == 0 else ()
            clip = _clip(engine, request, out, told, name=_name(asked.card, index, len(files)))
            _write(clip, target, out)
            notices |= dict.fromkeys(clip.used.adjusted)
        notices |= dict.fromkeys(_for_show(asked.card))
    for notice in notices:
        out.notice(notice)
    if options.as_json or options.as_events:
        repeated = {} if asked.recorded is None else {"differences": differences}
        out.document({"clips": out.done, "notices": [*drawn, *notices], **repeated})


def _clip(engine: Engine, request: Request, out: Out, told: Sequence[str], *, name: str) -> Clip:
    scope = CancelScope()
    tell = event_writer(out)
    with progress(out, name) as bars:

        def observer(event: RequestEvent) -> None:
            if isinstance(event, Started):  # at once, for whoever interrupts
                for notice in told:
                    out.notice(notice)
            bars.show(event)
            tell(event)

        with on_interrupt(lambda: _stopping(scope, bars), lambda: _stop_at_once(bars, out)):
            clip = engine.run(request, cancel=scope, observer=observer)
    if scope.cancelled:  # in the last call, too late for the engine
        raise interrupted()
    return clip


def _write(clip: Clip, target: Target, out: Out) -> None:
    facts: dict[str, object] = {"path": None, "action": None, "text": clip.text, "sidecar": None}
    facts |= asdict(clip.used)
    as_text = not (out.as_json or out.as_events)
    if target.is_told:
        out.done.append(facts)
        if as_text:
            out.lines(*(clip.text or "").split("\n"))
        return
    written = target.write_clip(clip)
    facts["path"] = str(target.shown(written))
    out.done.append(facts)
    actions = target.write_actions(clip, written)
    facts["action"] = None if actions is None else str(target.shown(actions))
    for path in (written, actions):
        if as_text and path is not None:
            out.path(target.shown(path))
    for notice in _left_out(clip, written):
        out.notice(notice)
    if sidecar := target.write_sidecar(clip, written):
        facts["sidecar"] = str(target.shown(sidecar))


def _left_out(clip: Clip, written: Path) -> Iterator[str]:
    held = format_of(written).holds
    if clip.audio is not None and "audio" not in held:
        yield f"the sound is not in {written.name}: .mp4 holds both, .wav the sound alone"
    if clip.text is not None and "text" not in held:
        yield f"the model wrote: {clip.text}"


def _stopping(scope: CancelScope, bars: Progress) -> None:
    scope.cancel()
    bars.stopping()


def _stop_at_once(bars: Progress, out: Out) -> None:
    bars.close()
    error = interrupted()
    out.error(error)
    os._exit(
        error.entry.exit_code
    )  # the main thread may be in a kernel; nothing but memory is held during a run


def _name(card: ModelCard, index: int, clips: int) -> str:
    return card.model_id if clips == 1 else f"{card.model_id} {index + 1}/{clips}"


def _drawn(asked: Asked, options: Options) -> Iterator[str]:
    if options.seed is None and asked.recorded is None:
        yield f"seed {asked.settled[0].seed} was drawn; --seed repeats it"


def _for_show(card: ModelCard) -> Iterator[str]:
    """What an untrained model makes, and one so small that its weights lie in a package."""
    if card.recipe.method is Method.UNTRAINED:
        told = f"{card.model_id} is untrained: its clips are noise"
    elif presence(card) is Presence.EMBEDDED and not Path(card.weights).is_absolute():
        told = f"{card.model_id} is a demonstration model: {card.summary}"
    else:
        return
    relatives = (one for one in all_cards() if one.family == card.family and one.checkpoint is not None)
    if real := next(relatives, None):
        told += f"; `fv weights pull {real.model_id}` fetches a real model, for --model {real.model_id}"
    yield told
