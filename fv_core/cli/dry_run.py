"""`--dry-run`: what a run would take, told without loading a weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fv_core.cli.asked import Asked
from fv_core.cli.options import Options
from fv_core.cli.output import Out, human_bytes
from fv_core.cli.repeat import overruled, usable_device
from fv_core.cli.targets import Target
from fv_core.errors import WeightsError
from fv_core.request import BoundAdapter
from fv_core.weights.store import locate

if TYPE_CHECKING:
    from fv_core.runtime.estimate import RunPlan

_UNSTATED = "not stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The prediction for one clip, and the machine it is for. Memory in bytes.

    Args:
        free_bytes: what the run may use.
        limited: whether that is what `--memory` says, rather than what the device has.
    """

    asked: Asked
    run: RunPlan
    device: str
    dtype: str
    free_bytes: int
    limited: bool
    max_batch: int
    folder: Path | None
    missing: str | None
    outputs: tuple[Path, ...]

    def fits(self, needed: int) -> bool:
        return needed <= self.free_bytes

    @property
    def runs(self) -> bool:
        """Whether one clip fits as it would run here."""
        one_at_a_time = self.run.offload == "component"
        return self.fits(self.run.peak_bytes_offloaded if one_at_a_time else self.run.peak_bytes)


def tell_plan(asked: Asked, files: Sequence[Target], options: Options, out: Out) -> bool:
    """Whether a clip would fit.

    Raises:
        FvError: the device, precision or offload mode is not usable here.
    """
    plan = _plan(asked, files, options)
    if options.as_json:
        out.document(_document(plan))
    else:
        out.lines(*_request(plan), "")
        out.table(("COMPONENT", "WEIGHTS", "WORKING MEMORY"), _components(plan.run))
        out.lines("", *_memory(plan))
    for sentence in (*overruled(asked, options), *plan.run.request.adjusted):
        out.notice(sentence)
    return plan.runs


def _plan(asked: Asked, files: Sequence[Target], options: Options) -> _Plan:
    from fv_core.runtime.device import pick_dtype
    from fv_core.runtime.engine import Engine

    folder, missing = _weights(asked, options)
    device = usable_device(asked, options)
    with Engine(
        [asked.card.model_id],
        device=device,
        dtype=asked.dtype,
        offload=options.offload,
        memory=options.memory,
        max_batch=options.max_batch,
    ) as engine:
        return _Plan(
            asked=asked,
            run=engine.plan(asked.requests[0]),
            device=str(engine.device),
            dtype=str(pick_dtype(asked.dtype, asked.card, engine.device)).removeprefix("torch."),
            free_bytes=(free := engine.capacity()),
            limited=free == options.memory,
            max_batch=options.max_batch,
            folder=folder,
            missing=missing,
            outputs=tuple(file.likely(settled) for file, settled in zip(files, asked.settled, strict=True)),
        )


def _weights(asked: Asked, options: Options) -> tuple[Path | None, str | None]:
    """The folder, None where there is none to read; and what is said where it is absent."""
    try:
        return locate(asked.card, options.weights), None
    except WeightsError as error:
        if error.code != "FV251":
            raise  # a folder that the user names is as wrong for a plan as for a run
        return None, f"{error.rule}; {error.remedy}"


def _request(plan: _Plan) -> Iterator[str]:
    request, clips = plan.run.request, len(plan.outputs)
    length = f"{request.frames / request.fps:.2f} s"
    yield f"{request.model} on {plan.device}, {plan.dtype}, numerics {request.numerics}"
    yield f"  task      {request.task}"
    yield f"  prompt    {request.prompt!r}"
    for one in request.inputs:
        yield f"  {one.modality:<9} {one.path}"
    for adapter in plan.run.adapters:
        yield f"  lora      {_adapter(adapter)}"
    yield f"  negative  {request.negative_prompt!r}"
    yield f"  clip      {request.size}, {request.frames} frames at {request.fps:g} fps ({length})"
    yield f"  steps     {request.steps} ({plan.run.steps} with encoding and decoding)"
    yield f"  time      {_time(plan.run.seconds)}"
    yield f"  guidance  {request.guidance:g}"
    yield "  seed      " + ", ".join(str(one.seed) for one in plan.asked.settled)
    for name, value in request.params.items():
        yield f"  {name:<9} {value}"
    yield f"  weights   {plan.missing or plan.folder or 'made on load'}"
    yield f"  output    {plan.outputs[0]}" + (f" and {clips - 1} more" if clips > 1 else "")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "not known: such steps have not been measured on this machine yet"
    return f"about {seconds:.{0 if seconds >= 10 else 1}f} s a clip, by what such steps took here"


def _adapter(one: BoundAdapter) -> str:
    layers = ", ".join(f"{count} layers of {component}" for component, count in one.layers.items())
    alpha = "" if one.alpha_stated else "; no alpha in the file: it is the rank"
    return f"{one.path} ({one.sha256[:12]}) at {one.scale:g}: {layers}{alpha}"


def _components(run: RunPlan) -> list[tuple[str, str, str]]:
    return [
        (
            name,
            human_bytes(size),
            human_bytes(run.activations[name]) if name in run.activations else _UNSTATED,
        )
        for name, size in run.weights.items()
    ]


def _memory(plan: _Plan) -> Iterator[str]:
    if len(plan.outputs) > 1:
        yield f"for one clip of {len(plan.outputs)}; more of them run at a time where they fit"
    if plan.run.adapter_bytes:
        yield f"{'loras':<20} {human_bytes(plan.run.adapter_bytes):>10}"
    modes = {
        "peak, all resident": plan.run.peak_bytes,
        "peak, one at a time": plan.run.peak_bytes_offloaded,
    }
    for mode, needed in modes.items():
        yield f"{mode:<20} {human_bytes(needed):>10}{'' if plan.fits(needed) else '  (does not fit)'}"
    if unstated := [name for name in plan.run.weights if name not in plan.run.activations]:
        yield f"  without the working memory of {', '.join(unstated)}, which the card does not state"
    if used := {name: size for name, size in plan.run.caches.items() if size}:
        told = ", ".join(f"{name} {human_bytes(size)}" for name, size in used.items())
        yield f"{'caches, in both':<20} {told}"
    free = f"{'allowed' if plan.limited else 'free'} on {plan.device}"
    yield f"{free:<20} {human_bytes(plan.free_bytes):>10}"
    unable = "  (one at a time needs an accelerator)" if plan.device == "cpu" else ""
    yield f"{'rows of a forward':<20} {plan.max_batch:>10}"
    yield f"{'offload':<20} {plan.run.offload:>10}{unable}"


def _document(plan: _Plan) -> dict[str, object]:
    run = plan.run
    return {
        "request": asdict(run.request),
        "adapters": [asdict(one) for one in run.adapters],
        "seeds": [one.seed for one in plan.asked.settled],
        "outputs": [str(path) for path in plan.outputs],
        "device": plan.device,
        "dtype": plan.dtype,
        "steps": run.steps,
        "seconds": run.seconds,
        "weights": None if plan.folder is None else str(plan.folder),
        "weights_missing": plan.missing,
        "weight_bytes": dict(run.weights),
        "working_bytes": {name: run.activations.get(name) for name in run.weights},
        "cache_bytes": dict(run.caches),
        "adapter_bytes": run.adapter_bytes,
        "peak_bytes": run.peak_bytes,
        "peak_bytes_offloaded": run.peak_bytes_offloaded,
        "free_bytes": plan.free_bytes,
        "fits": plan.runs,
        "offload": run.offload,
        "max_batch": plan.max_batch,
    }
