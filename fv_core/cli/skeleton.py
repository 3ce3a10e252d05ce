"""`fv plugins new`: a working, tested plugin of another name, from the tutorial plugins in the documentation.

`python -m fv_core.cli.skeleton docs > fv_core/cli/skeletons.json` takes them over.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from fv_core.errors import RequestError
from fv_core.plugins import default_registry
from fv_core.plugins.discovery import installed_version

KINDS: Final = {"model": "echo", "interceptor": "halfskip"}
"""What a plugin can bring, and the tutorial plugin that shows it."""

NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[._-][a-z0-9]+)*")
"""A plugin's name is the first half of its models' ids."""

_README: Final = """# fv-@NAME@

A plugin for fv. It was written by `fv plugins new` and works as it is; make it yours.

```console
$ pip install -e '.[testing]'
$ fv plugins check .
$ pytest
```
"""


def require_free(name: str) -> None:
    """Raises:
    UsageError: it is no name for a plugin, or another one would be replaced or excluded.
    """
    if NAME.fullmatch(name) is None:
        raise click.UsageError(
            f"{name!r} is not a name for a plugin: a letter first, a-z and 0-9, in words that - joins."
        )
    if any(record.name == name for record in default_registry().records()):
        raise click.UsageError(f"a plugin {name} is installed, and two of one name exclude each other.")
    if (found := taken(name)) is not None:
        raise click.UsageError(f"{found} is installed, and the new plugin would replace it.")


def taken(name: str) -> str | None:
    """The installed distribution or package that a plugin of this name would replace, fv's own included."""
    dist, package = f"fv-{name}", f"fv_{_word(name)}"
    if installed_version(dist) is not None:
        return f"the distribution {dist}"
    return f"the package {package}" if find_spec(package) is not None else None


def write(kind: str, name: str, folder: Path) -> list[Path]:
    """Writes the plugin `name` into `folder`, which must not exist.

    Returns:
        The files, in order.

    Raises:
        RequestError: FV315, the folder is there or cannot be written.
    """
    if folder.exists() or folder.is_symlink():
        raise _unusable(folder, "is there already")
    files = {folder / _named(path, name): _named(text, name) for path, text in _skeletons()[kind].items()}
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unusable(folder, f"cannot be written ({error.strerror})") from error
    return sorted(files)


def collect(docs: Path) -> dict[str, dict[str, str]]:
    """The text of every file by its path, by kind, with marks where the name of the tutorial plugin is."""
    return {kind: _collected(docs / f"fv-{tutorial}", tutorial) for kind, tutorial in KINDS.items()}


def _collected(folder: Path, tutorial: str) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        if path.is_file() and not any(part.startswith((".", "__py")) for part in place.parts):
            found[_marked(str(place), tutorial)] = _marked(path.read_text(encoding="utf-8"), tutorial)
    return {**found, "README.md": _README}


def _marked(text: str, tutorial: str) -> str:
    text = re.sub(rf"(fv|test)_{tutorial}", r"\1_@WORD@", text).replace(tutorial, "@NAME@")
    return text.replace("A tutorial plugin", "A plugin").replace(
        "the model of the plugin guide", "a small model"
    )


def _named(text: str, name: str) -> str:
    return text.replace("@WORD@", _word(name)).replace("@NAME@", name)


def _word(name: str) -> str:
    return re.sub(r"[.-]", "_", name)


def _skeletons() -> dict[str, dict[str, str]]:
    stored = resources.files("fv_core.cli").joinpath("skeletons.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = json.loads(stored)
    return found


def _unusable(folder: Path, rule: str) -> RequestError:
    return RequestError(
        "FV315",
        name="folder",
        value=str(folder),
        rule=rule,
        remedy="Name another one: fv plugins new NAME PATH.",
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(collect(Path(sys.argv[1])), indent=1, ensure_ascii=False) + "\n")
