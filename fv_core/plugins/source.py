"""A plugin's source folder, read without its installed metadata: what its pyproject.toml declares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from fv_core.errors import FvError, PluginError
from fv_core.plugins.discovery import GROUP, declared, misnamed, unmet
from fv_core.plugins.record import PluginRecord
from fv_core.plugins.verdict import refused

_LEGAL: Final = "a pyproject.toml with a [project] table"
_NAME_ONE: Final = "Name the folder of a plugin."


def source_records(folder: Path) -> tuple[PluginRecord, ...]:
    """The plugins that the project in `folder` declares, one per entry point, as if installed editable.

    Raises:
        PluginError: FV119, it is not the folder of a plugin.
    """
    project = _project(folder)
    points = project.get("entry-points", {}).get(GROUP, {})
    if not points:
        legal = f'[project.entry-points.{GROUP}] NAME = "PACKAGE"'
        raise _unreadable(folder, "declares no plugin", legal)
    found = []
    for name, module in points.items():
        record = PluginRecord(
            name=name,
            module=str(module),
            dist=str(project.get("name", folder.name)),
            version=str(project.get("version", "0")),
            location=str(folder),
            editable=True,
        )
        fault = misnamed(record) or _unmet(record, project.get("dependencies"))
        found.append(refused(record, (fault,)) if fault else record)
    return tuple(found)


def _unmet(record: PluginRecord, dependencies: Any) -> FvError | None:
    try:
        if not isinstance(dependencies, list | None):
            raise TypeError(f"{dependencies!r} is no list")
        return unmet(record, dependencies)
    except (TypeError, ValueError) as error:  # no list of requirements
        rule = f"states dependencies that cannot be read: {error}"
        return PluginError(
            "FV119", name=record.title, rule=rule, legal='["torch>=2.6", ...]', remedy="Correct them."
        )


def drift(record: PluginRecord) -> FvError | None:
    """FV110 where the source of an editable install declares other entry points than its metadata."""
    folder = Path(record.location)
    if not record.editable or not (folder / "pyproject.toml").is_file():
        return None
    project = _project(folder)
    points, installed = project.get("entry-points", {}).get(GROUP, {}), declared(record.dist)
    if points == installed or not project or "entry-points" in project.get("dynamic", ()):
        return None
    return PluginError(
        "FV110",
        name=record.title,
        rule=f"declares entry points {points} in its source, {installed} in its metadata",
        remedy=f"Install it again: pip install -e {record.location}.",
    )


def drifted(record: PluginRecord) -> PluginRecord:
    """`record`, refused where its source and its metadata disagree or the source cannot be read."""
    try:
        fault = drift(record)
    except PluginError as error:
        fault = error
    return refused(replace(record, provides=()), (fault,)) if fault else record


def _project(folder: Path) -> dict[str, Any]:
    import tomllib  # only sources are read with it

    file = folder / "pyproject.toml"
    try:
        project: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError) as error:
        raise _unreadable(file, f"cannot be read: {error}", _LEGAL, _remedy(file)) from error
    points = project.get("entry-points", {}) if isinstance(project, dict) else None
    if not isinstance(points, dict) or not isinstance(points.get(GROUP, {}), dict):
        raise _unreadable(file, "has another form than it must", _LEGAL, _remedy(file))
    return project


def _remedy(file: Path) -> str:
    return f"Correct {file}." if file.exists() else _NAME_ONE


def _unreadable(place: Path, rule: str, legal: str, remedy: str = _NAME_ONE) -> PluginError:
    return PluginError("FV119", name=str(place), rule=rule, legal=legal, remedy=remedy)
