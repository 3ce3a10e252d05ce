"""`fv export`: the model of a run as files for others, read back before they are called written."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from fv_core.cli import skeleton
from fv_core.cli.commands import Command, json_option
from fv_core.cli.output import Out
from fv_core.cli.progress import waiting

_FORMATS: Final = ("diffusers", "lora", "comfyui", "plugin")


@click.command(cls=Command)
@click.argument("run", metavar="RUN")
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), default="diffusers", show_default=True, allow_from_autoenv=False,
    help="diffusers: a folder of the model; lora, comfyui: a file of the LoRA, as diffusers or ComfyUI names layers; "
    "plugin: the source of a distribution that brings the model, named as the folder is.",
)  # fmt: skip
@click.option(
    "--dtype",
    type=click.Choice(("float32", "bfloat16", "float16")),
    allow_from_autoenv=False,
    help="Precision of what is written: float32, for a plugin bfloat16, unless told.",
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), required=True, allow_from_autoenv=False, metavar="PATH",
    help="A new folder, or a new file for a LoRA; of a plugin, fv-NAME.",
)  # fmt: skip
@json_option
@click.pass_obj
def export(out: Out, run: str, form: str, dtype: str | None, output: Path, as_json: bool) -> None:
    """Write the model of the training RUN as files for others and print where."""
    name = output.name.removeprefix("fv-")
    if dtype is not None and form in ("lora", "comfyui"):
        raise click.UsageError(f"--format {form} writes factors as they were trained; leave out --dtype.")
    if form == "plugin":
        skeleton.require_free(name)
    with waiting(out, f"{run}: exporting"):
        from fv_core.training.distribution import export_plugin  # loads torch
        from fv_core.training.export import export_lora, export_model

        if form == "diffusers":
            written = export_model(run, output, dtype=dtype or "float32")
        elif form == "plugin":
            written = export_plugin(run, output, name=name, dtype=dtype or "bfloat16")
        else:
            written = export_lora(run, output, comfy=form == "comfyui")
    if as_json:
        out.document({"format": form, "path": str(written)})
    else:
        out.path(written)
