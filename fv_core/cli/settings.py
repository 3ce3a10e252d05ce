"""Settings in files: `./fv.toml` before the user's `config.toml`, both after flags and environment variables.

A file has one table per verb that reads it, with the names of the verb's options: `[generate]`, `steps = 30`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, Final

import click

from fv_core.cli import values
from fv_core.cli.commands import Command
from fv_core.errors import RequestError

TABLES: Final = ("generate",)
"""Verbs whose options files may set."""

_KINDS: Final[Mapping[object, tuple[type, ...]]] = {
    values.number: (int, float),
    values.real: (int, float),
    values.rate: (int, float, str),
    values.memory: (str, int),
}
_WORDS: Final = {bool: "true or false", int: "a number", list: "a list of strings", str: "a string"}


def config_files() -> tuple[Path, ...]:
    """Where settings are looked for, the first to be heeded first; they need not exist."""
    import platformdirs

    return (Path("fv.toml"), Path(platformdirs.user_config_dir("fv", appauthor=False)) / "config.toml")


class ConfiguredCommand(Command):
    """A command whose options take their defaults from files. Help and completion read none."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        wants_help = "--help" in args
        if info_name is not None and not wants_help and not extra.get("resilient_parsing"):
            extra["default_map"] = settings(self, info_name)
        return super().make_context(info_name, args, parent, **extra)


def settings(command: click.Command, verb: str) -> MutableMapping[str, Any]:
    """What the files say for `verb`, by parameter name.

    Raises:
        RequestError: FV316, a file cannot be read, or holds an unknown table or key or a value of the wrong type.
    """
    found: dict[str, Any] = {}
    for file in reversed(config_files()):
        for name, value in _table(file, verb).items():
            found[_checked(command, f"{file}: {verb}.{name}", name, value)] = value
    return found


def origins(command: click.Command, verb: str) -> dict[str, Path]:
    """The file that each setting of `settings` comes from, by parameter name; raises as `settings` does."""
    return {
        _checked(command, f"{file}: {verb}.{name}", name, value): file
        for file in reversed(config_files())
        for name, value in _table(file, verb).items()
    }


def configurable(command: click.Command) -> dict[str, click.Option]:
    """The options that files may set, by their long name; those that only make sense once are left out."""
    return {key(one): one for one in _options(command) if one.allow_from_autoenv}


def key(option: click.Option) -> str:
    """The option's name in a file: its longest, without dashes."""
    return max(option.opts, key=len).lstrip("-")


def _options(command: click.Command) -> Iterator[click.Option]:
    return (one for one in command.params if isinstance(one, click.Option))


def _table(file: Path, verb: str) -> Mapping[str, Any]:
    import tomllib  # only a process that reads settings needs it

    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _wrong(str(file), None, f"cannot be read: {error}", "", "Correct the file.") from error
    for name, table in tables.items():
        if name not in TABLES or not isinstance(table, dict):
            legal = ", ".join(f"[{known}]" for known in TABLES)
            raise _wrong(f"{file}: {name}", None, "is not a table that fv reads", legal, "Remove it.")
    chosen: dict[str, Any] = tables.get(verb, {})
    return chosen


def _checked(command: click.Command, where: str, name: str, value: Any) -> str:
    """The name of the parameter that the key `name` sets; `value` is of its type and form."""
    known = configurable(command)
    if name not in known:
        raise _wrong(where, None, "is not a setting", ", ".join(sorted(known)), "Correct the name.")
    option = known[name]
    kinds = _kinds(option)
    listed = option.multiple and isinstance(value, list) and all(isinstance(item, str) for item in value)
    if type(value) not in kinds or (option.multiple and not listed):
        raise _wrong(where, value, "is of the wrong type", _WORDS[kinds[0]], "Correct the value.")
    try:
        option.type_cast_value(click.Context(command), value)
    except click.BadParameter as error:
        rule = f"is not legal: {error.message.removesuffix('.')}"
        raise _wrong(where, value, rule, "", "Correct the value.") from error
    assert option.name is not None
    return option.name


def _kinds(option: click.Option) -> tuple[type, ...]:
    if option.is_flag:
        return (bool,)
    if option.multiple:
        return (list,)
    if isinstance(option.type, click.IntRange):
        return (int,)
    return _KINDS.get(getattr(option.type, "func", None), (str,))


def _wrong(name: str, value: object, rule: str, legal: str, remedy: str) -> RequestError:
    return RequestError("FV316", name=name, value=value, rule=rule, legal=legal, remedy=remedy)
