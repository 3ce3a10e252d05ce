"""`fv export`: the model of a run as files for others, read back before they are called written."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from fv_core.cli.commands import Command, json_option
from fv_core.cli.output import Out
from fv_core.cli.progress import waiting

_FORMATS: Final = ("diffusers", "lora", "comfyui")


@click.command(cls=Command)
@click.argument("run", metavar="RUN")
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), default="diffusers", show_default=True, allow_from_autoenv=False,
    help="diffusers: a folder of the model; lora, comfyui: a file of the LoRA, as diffusers or ComfyUI names layers.",
)  # fmt: skip
@click.option(
    "--dtype",
    type=click.Choice(("float32", "bfloat16", "float16")),
    default="float32",
    show_default=True,
    allow_from_autoenv=False,
    help="Precision of what is written.",
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), required=True, allow_from_autoenv=False, metavar="PATH",
    help="A new folder, or a new file for a LoRA.",
)  # fmt: skip
@json_option
@click.pass_obj
def export(out: Out, run: str, form: str, dtype: str, output: Path, as_json: bool) -> None:
    """Write the model of the training RUN as files for others and print where."""
    with waiting(out, f"{run}: exporting"):
        from fv_core.training.export import export_lora, export_model  # loads torch

        if form == "diffusers":
            written = export_model(run, output, dtype=dtype)
        else:
            written = export_lora(run, output, comfy=form == "comfyui")
    if as_json:
        out.document({"format": form, "path": str(written)})
    else:
        out.path(written)
