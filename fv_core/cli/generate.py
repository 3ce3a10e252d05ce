"""`fv generate`: its options, and the order of things: every check first, then weights, then compute."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from fv_core.cli import values
from fv_core.cli.commands import events_option, json_option
from fv_core.cli.completion import model_ids
from fv_core.cli.options import Options
from fv_core.cli.output import Out
from fv_core.cli.settings import ConfiguredCommand
from fv_core.cli.sources import sources
from fv_core.errors import CODES
from fv_core.plugins import record_of
from fv_core.request import TaskType

_once = partial(click.option, allow_from_autoenv=False)  # makes sense for one run: no variable, no setting
_path = click.Path(path_type=Path)
_NEVER_FITS: Final = "FV401"


@click.command(cls=ConfiguredCommand)
@click.argument("prompt", required=False)
@click.option(
    "--model", metavar="ID", shell_complete=model_ids, help="A model of `fv models`.  [default: wan21/tiny]"
)
@click.option("--size", type=values.size, metavar="WxH", help="Width and height in pixels.")
@click.option("--frames", type=values.number, metavar="N", help="Length of the clip.")
@click.option("--fps", type=values.rate, metavar="N", help="Frames per second, such as 16 or 30000/1001.")
@click.option("--steps", type=values.number, metavar="N", help="Denoising steps.")
@click.option(
    "--guidance", type=values.real, metavar="G", help="How strictly to follow the prompt; 1 is off."
)
@click.option("--negative", metavar="TEXT", help="What not to show.")
@click.option("--seed", type=values.number, metavar="N", help="Decides the clip.  [default: drawn, and told]")
@click.option(
    "--n",
    "n",
    type=values.Whole(1, 1000),
    default=1,
    metavar="N",
    help="Number of clips, of seeds SEED, SEED+1, ...",
)
@click.option(
    "--device",
    default="auto",
    envvar=["FV_GENERATE_DEVICE", "FV_DEVICE"],
    metavar="NAME",
    help="auto, cuda, cuda:N, mps or cpu.",
)
@click.option(
    "--dtype",
    type=click.Choice(("auto", "float32", "bfloat16", "float16")),
    default="auto",
    help="Precision; auto is the card's for the device.",
)
@click.option(
    "--weights", type=_path, metavar="PATH", help="A folder of weights in place of the pulled ones."
)
@click.option(
    "--numerics",
    type=click.Choice(("reference", "exact", "fast")),
    help="The promise about bits.  [default: exact]",
)
@click.option(
    "--max-batch",
    type=values.Whole(1, 256),
    default=16,
    metavar="N",
    help="Rows that one forward has at most; 1 lets no calls share one.",
)
@click.option(
    "--offload",
    type=click.Choice(("auto", "none", "component")),
    default="auto",
    help="Keep weights in host memory until they compute.",
)
@click.option(
    "--memory", type=values.memory, metavar="SIZE", help="Most of the device's memory to use, such as 8GiB."
)
@click.option(
    "--require-certified", is_flag=True, help="Refuse a model without valid certificates for this machine."
)
@click.option(
    "--set", "set", multiple=True, metavar="K=V", help="A parameter that the card declares, such as shift=5."
)
@click.option(
    "--lora",
    multiple=True,
    metavar="PATH[:SCALE]",
    help="A LoRA to run with, a file or a folder of peft's; they add up in their order.",
)
@click.option(
    "--task",
    type=click.Choice([task.value for task in TaskType]),
    help="What to make of what you give.  [default: the card's first]",
)
@_once("--image", multiple=True, metavar="FILE", help="An image for tasks that take one.")
@_once("--video", multiple=True, metavar="FILE", help="A video for tasks that take one.")
@_once("--audio", multiple=True, metavar="FILE", help="A sound for tasks that take one.")
@_once("--action", multiple=True, metavar="FILE", help="Actions (.npy) for tasks that take them.")
@_once("--from", "repeat", type=_path, metavar="SIDECAR", help="Repeat the run that wrote this file.")
@click.option(
    "--sidecar", is_flag=True, help="Also write OUTPUT.json: all that --from needs, prompt included."
)
@_once(
    "--dry-run",
    is_flag=True,
    help="Print the plan and its memory; load nothing. Exits with 4 where it does not fit.",
)
@_once("--force", is_flag=True, help="Replace what is at the output.")
@_once(
    "--output", "-o", type=_path, metavar="FILE",
    help=".mp4, .webm, .gif, .webp, .png, .npy, .wav or .txt.  [default: ./WORDS-SEED.mp4, .png for an image]",
)  # fmt: skip
@click.option("--scale", type=values.number, default=1, metavar="N", help="Enlarge by a whole factor.")
@json_option
@events_option
@click.pass_context
def generate(ctx: click.Context, /, **given: Any) -> None:
    """Make clips from PROMPT and print their paths.

    What you leave out the card decides. Settings come from flags, then FV_GENERATE_<OPTION>, then ./fv.toml, then
    the user's config.toml (table [generate]), then the card.
    """
    flags = frozenset(name for name in given if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE)
    options = Options(**given, folder=_folder(), flags=flags, sources=sources(ctx))
    options.check()
    if not _generate(options, ctx.ensure_object(Out)):
        ctx.exit(CODES[_NEVER_FITS].exit_code)  # as the run would


def _folder() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it is gone: what needs it will tell
        return Path()


def _generate(options: Options, out: Out) -> bool:
    """Whether the run was made or, of a plan, whether it could be."""
    # Late, and in this order: what is checked cheaply is refused before anything heavy loads.
    from fv_core.cli.asked import asked
    from fv_core.cli.targets import targets

    wanted = asked(options)
    record = record_of(wanted.card)
    if record is not None and record.reason:
        out.warning(f"{'; '.join(record.reason.splitlines())}; {record.remedy}")
    files = targets(wanted, options)
    if options.dry_run:
        from fv_core.cli.dry_run import tell_plan

        return tell_plan(wanted, files, options, out)
    from fv_core.cli.making import make

    make(wanted, files, options, out)
    return True
