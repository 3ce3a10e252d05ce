"""Where the value of an option comes from when the command line does not give it: a variable, or a key of a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import click
from click.core import ParameterSource

from fv_core.errors import FvError

_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "negative": ("negative prompt", "negative_prompt"),
    "set": ("parameter",),
    "lora": ("adapter", "adapters"),
    "dtype": ("dtype", "precision"),
}
"""How errors call what an option of another name sets."""


def source(option: click.Option, ctx: click.Context) -> str:
    """`FV_GENERATE_STEPS`, or `fv.toml: generate.steps`; "" for what is given as a flag or by nobody."""
    assert option.name is not None
    match ctx.get_parameter_source(option.name):
        case ParameterSource.ENVIRONMENT:
            return variable(option, ctx)
        case ParameterSource.DEFAULT_MAP:
            from fv_core.cli.settings import key, origins  # settings are of commands, which need this module

            file = origins(ctx.command, str(ctx.info_name))[option.name]
            return f"{file}: {ctx.info_name}.{key(option)}"
    return ""


def sources(ctx: click.Context) -> dict[str, str]:
    """The source of every option of the command that has one, by parameter name."""
    options = (one for one in ctx.command.params if isinstance(one, click.Option))
    return {str(one.name): told for one in options if (told := source(one, ctx))}


def variable(option: click.Option, ctx: click.Context) -> str:
    """The variable that gives the value: the first of its names that is set."""
    listed = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    names = [*listed, f"{ctx.auto_envvar_prefix}_{str(option.name).upper()}"]
    return next((name for name in names if os.environ.get(name)), names[-1])


def sourced(error: FvError, ctx: click.Context) -> FvError:
    """`error`, named after the source of the option whose value it refuses where that is none of the command line."""
    for name, told in sources(ctx).items():
        words = _WORDS.get(name, (name,))
        named = error.name in words or error.name.startswith(tuple(f"{word} " for word in words))
        if named or error.name == str(ctx.params.get(name)):
            return type(error)(
                error.code,
                name=f"{told} ({error.name})",
                value=error.value,
                rule=error.rule,
                legal=error.legal,
                remedy=error.remedy,
            )
    return error
