"""`fv train`: trains what a TOML file sets, or tells what it would do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from fv_core import __version__
from fv_core.cli.commands import Command, events_option, json_option
from fv_core.cli.interrupt import on_interrupt
from fv_core.cli.output import Out, human_bytes
from fv_core.cli.progress import waiting
from fv_core.plugins import plugin_records
from fv_core.request import CancelScope
from fv_core.runtime.models import EMBEDDED_DEFAULT

if TYPE_CHECKING:
    from fv_core.extend import RewardSpec, TrainingMethodSpec
    from fv_core.training.data.encoded import Filled
    from fv_core.training.data.report import FileRow
    from fv_core.training.plan import TrainPlan
    from fv_core.training.runlog import StepTold

_PACE_S: Final = 30.0


@click.command(cls=Command)
@click.argument("config", metavar="CONFIG", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.argument("overrides", metavar="KEY=VALUE...", nargs=-1)
@click.option(
    "--resume",
    metavar="CHECKPOINT",
    allow_from_autoenv=False,
    help="Go on from a checkpoint of the run: latest, a step, or a path.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    allow_from_autoenv=False,
    help="Tell what it would do, with its first gradient.",
)
@click.option(
    "--cache-only",
    is_flag=True,
    allow_from_autoenv=False,
    help="Compute the latents and embeddings that it needs, and train nothing.",
)
@click.option(
    "--init",
    metavar="METHOD",
    allow_from_autoenv=False,
    help="Print a CONFIG of METHOD to begin from instead.",
)
@click.option(
    "--list",
    "as_list",
    is_flag=True,
    allow_from_autoenv=False,
    help="List methods, kinds of data and rewards.",
)
@json_option
@events_option
@click.pass_context
def train(
    ctx: click.Context,
    config: Path | None,
    overrides: tuple[str, ...],
    resume: str | None,
    dry_run: bool,
    cache_only: bool,
    init: str | None,
    as_list: bool,
    as_json: bool,
    as_events: bool,
) -> None:
    """Train what the TOML file CONFIG sets and print the run's folder.

    KEY=VALUE sets a key of the file otherwise, such as train.lr=1e-5.
    """
    out = ctx.ensure_object(Out)
    if as_list or init is not None:
        _tell_kinds(init, out)
        return
    if config is None:
        raise click.MissingParameter(ctx=ctx, param_type="argument", param_hint="'CONFIG'")
    from fv_core.training import ranks, run  # loads torch

    if dry_run:
        _tell_plan(run.plan(config, overrides=overrides), out)
        return
    if cache_only:
        _tell_filled(run.fill_cache(config, overrides=overrides, note=out.notice), out)
        return
    cancel = CancelScope()
    with _showing(out, config.stem) as show, on_interrupt(cancel.cancel, lambda: os._exit(130)):
        result = run.train(
            config, overrides=overrides, resume=resume, observer=show, note=out.notice, cancel=cancel
        )
    if not ranks.Ranks.from_environment().first:
        return  # one of several that torchrun began tells
    if as_json or as_events:
        out.document({"run": str(result.folder), "steps": result.steps, "figures": dict(result.metrics)})
    else:
        out.path(result.folder)


@contextmanager
def _showing(out: Out, name: str) -> Iterator[Callable[[StepTold], None]]:
    """Shows each step on a terminal; elsewhere every half minute, and the last one."""
    told_at = time.monotonic()

    with waiting(out, f"{name}: loading") as update:

        def show(told: StepTold) -> None:
            nonlocal told_at
            if out.as_events:
                out.event("step", {"step": told.step, "steps": told.steps, "role": told.role, **told.figures})
            update(f"{name}: {_line(told)}")
            now = time.monotonic()
            if not out.draws_progress and (now - told_at > _PACE_S or told.step == told.steps):
                told_at = now
                out.notice(_line(told))

        yield show


def _line(told: StepTold) -> str:
    figures = told.figures
    left = (told.steps - told.step) * figures["seconds"]
    return (
        f"step {told.step}/{told.steps}, loss {figures['loss']:.4f}, lr {figures['lr']:.2e}, "
        f"{figures['samples_per_second']:.1f} samples/s, {left / 60:.0f} min left"
    )


def _tell_filled(filled: Filled, out: Out) -> None:
    if out.as_json or out.as_events:
        counts = {"latents": filled.latents, "embeds": filled.embeds, "found": filled.found}
        out.document({**counts, "notes": list(filled.notes)})
    else:
        out.lines(f"{filled.latents + filled.embeds} computed, {filled.found} found", *filled.notes)


def _tell_kinds(init: str | None, out: Out) -> None:
    """A file to begin from, or what methods and kinds of data there are."""
    from fv_core.training import offered
    from fv_core.training.data import SOURCES

    if init is not None:
        from fv_core.training.template import template

        out.lines(*template(init, model=EMBEDDED_DEFAULT, source="folder").splitlines())
    elif out.as_json or out.as_events:
        out.document(
            {
                "methods": [_offered(one) for one in offered.methods()],
                "data": list(SOURCES),
                "rewards": [_offered(one) for one in offered.rewards()],
            }
        )
    else:
        rows = [("method", one.id, _origin(one.id), one.summary) for one in offered.methods()]
        rows += [("data", name, _origin(name), "") for name in SOURCES]
        rows += [("reward", one.id, _origin(one.id), one.summary) for one in offered.rewards()]
        out.table(("KIND", "NAME", "FROM", "SUMMARY"), rows)


def _offered(spec: TrainingMethodSpec | RewardSpec) -> dict[str, str]:
    return {"id": spec.id, "from": _origin(spec.id), "summary": spec.summary}


def _origin(ident: str) -> str:
    """The distribution that an id comes from: bare ids are fv's own."""
    namespace, _, rest = ident.partition("/")
    if not rest:
        return f"fv-core {__version__}"
    return next((str(one) for one in plugin_records() if one.name == namespace), namespace)


def _tell_plan(plan: TrainPlan, out: Out) -> None:
    parameters = {role: dict(components) for role, components in plan.parameters.items()}
    if out.as_json or out.as_events:
        samples = [
            {"frames": one.frames, "height": one.height, "width": one.width, "samples": count}
            for one, count in sorted(plan.samples.items())
        ]
        sizes = {"samples_per_step": plan.total, "steps": plan.steps, "epochs": plan.epochs}
        told = {"parameters": parameters, "bytes": plan.bytes, "samples": samples, **sizes}
        files = [] if plan.report is None else [_file(row) for row in plan.report.rows]
        out.document({**told, "first_loss": plan.loss, "files": files})
        return
    if plan.report is not None:
        out.lines(*plan.report.lines(), "")
    for role, components in parameters.items():
        trained = ", ".join(f"{name} ({count:,})" for name, count in components.items())
        out.lines(f"{role} trains {trained}")
    if plan.report is None:
        for bucket, count in sorted(plan.samples.items()):
            out.lines(f"{count} samples of {bucket.frames} frames at {bucket.width}x{bucket.height}")
    out.lines(
        f"{plan.steps} steps of {plan.total} samples, {plan.epochs:.1f} epochs",
        f"{human_bytes(plan.bytes)} for weights, gradients and optimizer, activations beside them",
        f"every parameter got a gradient at the first step, whose loss is {plan.loss:.4f}",
    )


def _file(row: FileRow) -> dict[str, object]:
    bucket, size = row.bucket, row.size
    return {
        "file": row.file,
        "kept": bucket is not None,
        "told": list(row.told),
        "frames": row.frames,
        "resampled": row.resampled,
        "fps": None if row.fps is None else float(row.fps),
        "size": None if size is None else [size.width, size.height],
        "bucket": None if bucket is None else [bucket.frames, bucket.height, bucket.width],
    }
