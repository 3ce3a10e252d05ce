"""The closed list of environment variables: what else begins with FV_ is told, with the name that was meant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

import click

FIXED: Final = ("FV_DEBUG", "FV_DEVICE", "FV_HOME", "FV_PLUGINS", "FV_STRICT_PLUGINS")


def unknown_variables(root: click.Group, verbs: Iterable[str]) -> Iterator[str]:
    """A sentence for each variable of this process that no option and nothing else reads."""
    known = known_variables(root, verbs)
    for name in sorted(os.environ):
        if name.startswith("FV_") and name not in known:
            close = get_close_matches(name, known, n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            yield f"the environment variable {name} is not one that fv reads{meant}"


def known_variables(root: click.Group, verbs: Iterable[str]) -> list[str]:
    """The fixed names, and `FV_<VERB>_<OPTION>` of every option that takes its value from there too."""
    names = [*FIXED, *_names(root, "FV")]
    for verb in verbs:
        command = root.get_command(click.Context(root), verb)
        assert command is not None
        names += _names(command, f"FV_{verb.upper()}")
    return names


def _names(command: click.Command, prefix: str) -> Iterator[str]:
    for option in command.params:
        if isinstance(option, click.Option) and option.allow_from_autoenv:
            assert option.name is not None
            yield f"{prefix}_{option.name.upper()}"
    for name, inner in (command.commands if isinstance(command, click.Group) else {}).items():
        yield from _names(inner, f"{prefix}_{name.upper().replace('-', '_')}")
