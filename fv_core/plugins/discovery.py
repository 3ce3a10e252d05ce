"""Reads installed metadata; nothing else in fv does, because importing the backport replaces the stdlib finder.

Plugins are found and judged without importing any: who claims their name, which core they need, where they lie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

import importlib_metadata
from importlib_metadata import Distribution
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fv_core import __version__
from fv_core.errors import FvError, PluginError
from fv_core.plugins.record import PluginRecord
from fv_core.plugins.verdict import refused

GROUP: Final = "fv"
CORE: Final = "fv-core"

_UNREADABLE = (AttributeError, KeyError, LookupError, OSError, TypeError, ValueError)
"""What malformed metadata raises, depending on the file and on the version of the reader."""


def discover(paths: Sequence[str] | None = None) -> tuple[PluginRecord, ...]:
    """Every installed plugin, by name, without importing any; what metadata tells against one is in its state.

    Args:
        paths: folders to look in, in place of `sys.path`.
    """
    records = [record for dist in _plugin_dists(paths) for record in _records(dist, paths)]
    by_name = defaultdict(list)
    for record in records:
        by_name[record.name].append(record)
    settled = dict.fromkeys(_settled(record, by_name[record.name]) for record in records)
    return tuple(sorted(settled, key=lambda record: (record.name, record.dist)))


def declared(dist: str, paths: Sequence[str] | None = None) -> dict[str, str]:
    """The entry points that the installed metadata of `dist` declares in group `fv`: name -> module."""
    found = next(iter(_copies(dist, paths)), None)
    return (
        {} if found is None else {point.name: point.value for point in found.entry_points.select(group=GROUP)}
    )


def requirement_versions(dist: str) -> dict[str, str]:
    """Installed versions of what a distribution requires, extras left out, sorted by name; "absent" for none."""
    needed = {each.name for each in _requirements(importlib_metadata.requires(dist)) if _holds(each)}
    return {name: installed_version(name) or "absent" for name in sorted(needed)}


def extras_with(dist: str, module: str) -> tuple[str, ...]:
    """The extras of `dist` that may bring an absent module: those that require a distribution of its name, else all
    that are not installed, for a distribution need not be named like its module.
    """
    wanted = canonicalize_name(module.partition(".")[0])
    try:
        found = importlib_metadata.distribution(dist)
    except importlib_metadata.PackageNotFoundError:
        return ()
    absent = defaultdict(set)
    for each in _requirements(found.requires):
        for extra in found.metadata.get_all("Provides-Extra") or ():
            of_extra = each.marker is not None and not _holds(each) and each.marker.evaluate({"extra": extra})
            if of_extra and installed_version(each.name) is None:
                absent[str(extra)].add(canonicalize_name(each.name))
    named = tuple(extra for extra, names in absent.items() if wanted in names)
    return named[:1] or tuple(absent)


def installed_version(dist: str, paths: Sequence[str] | None = None) -> str | None:
    """The version of an installed distribution; None for none. `paths` are looked into before `sys.path`."""
    if canonicalize_name(dist) == CORE:
        return __version__
    found = next(iter(_copies(dist, paths)), None) or next(iter(_copies(dist, None)), None)
    return None if found is None else found.version


def unmet(
    record: PluginRecord, requires: Sequence[str] | None, paths: Sequence[str] | None = None
) -> FvError | None:
    """The first requirement that what is installed does not meet, extras left out; a pre-release counts as its version.

    Returns:
        FV109 another version is needed, FV114 it is absent, None all are met.
    """
    for each in filter(_holds, _requirements(requires)):
        have = installed_version(each.name, paths)
        if have is None:
            return PluginError(
                "FV114",
                name=record.title,
                rule=f"needs {each.name}, which is not installed",
                remedy=f'pip install "{each.name}{each.specifier}".',
            )
        if not each.specifier.contains(have, prereleases=True):
            return PluginError(
                "FV109",
                name=record.title,
                rule=f"needs {each.name} {each.specifier}, have {have}",
                remedy=f"Install versions that fit: pip install --upgrade {each.name} {record.dist}.",
            )
    return None


def misnamed(record: PluginRecord) -> FvError | None:
    """FV119 where the entry point names no package."""
    if all(part.isidentifier() for part in record.module.split(".")):
        return None
    return PluginError(
        "FV119",
        name=f"{record.title}: entry point",
        value=record.module,
        rule="is not the name of a package",
        legal=f'[project.entry-points.{GROUP}] {record.name} = "PACKAGE"',
        remedy=f"Correct it in the pyproject.toml of {record.dist} and install that again, or tell its author.",
    )


def _plugin_dists(paths: Sequence[str] | None) -> Iterator[Distribution]:
    """The distributions with entry points of the group; of several copies the one that Python would import."""
    seen = set()
    for dist in _distributions(paths):
        if _points(dist) and (name := canonicalize_name(_name(dist))) not in seen:
            seen.add(name)
            first = next(iter(_copies(_name(dist), paths)), dist)
            if _points(first):
                yield first


def _distributions(paths: Sequence[str] | None) -> Iterator[Distribution]:
    return iter(Distribution.discover() if paths is None else Distribution.discover(path=list(paths)))


def _copies(name: str, paths: Sequence[str] | None) -> Iterator[Distribution]:
    where = {} if paths is None else {"path": list(paths)}
    return iter(Distribution.discover(name=name, **where))


def _points(dist: Distribution) -> list[tuple[str, str]]:
    try:
        return [(point.name, point.value) for point in dist.entry_points if point.group == GROUP]
    except _UNREADABLE:
        file = _info(dist) / "entry_points.txt"
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        return [(_name(dist), "")] if f"[{GROUP}]" in text else []  # told under the distribution's own name


def _records(dist: Distribution, paths: Sequence[str] | None) -> Iterator[PluginRecord]:
    location, editable = _place(dist)
    for name, module in _points(dist):
        record = PluginRecord(
            name=name, module=module, dist=_name(dist), version="", location=location, editable=editable
        )
        try:
            record = replace(record, version=dist.version)
            tuple(dist.entry_points)  # raises where they cannot be read
            fault = misnamed(record) or _source_gone(record) or unmet(record, dist.requires, paths)
        except _UNREADABLE as error:
            record = replace(record, version=record.version or "unknown")
            fault = PluginError(
                "FV119",
                name=record.title,
                rule=f"has metadata that cannot be read: {type(error).__name__}: {error}",
                remedy=f"Install it again: pip install --force-reinstall {record.dist}.",
            )
        yield refused(record, (fault,)) if fault else _doubled(record, paths)


def _doubled(record: PluginRecord, paths: Sequence[str] | None) -> PluginRecord:
    places = list(dict.fromkeys(str(_info(dist)) for dist in _copies(record.dist, paths)))
    if len(places) < 2:
        return record
    return replace(
        record,
        reason=f"{record.dist} is installed {len(places)} times and the first one counts: {', '.join(places)}",
        remedy=f"pip uninstall {record.dist} until none is left, then install it once.",
    )


def _settled(record: PluginRecord, claimants: Sequence[PluginRecord]) -> PluginRecord:
    if len(claimants) == 1:
        return record
    dists = {one.dist for one in claimants}
    if len(dists) == 1:
        return _repeated(record, [one.module for one in claimants])
    owners = " and ".join(f"{one} ({one.location})" for one in sorted(claimants, key=str))
    cures = " or ".join(f"pip uninstall {dist}" for dist in sorted(dists))
    fault = PluginError(
        "FV108",
        name=record.title,
        rule=f"is one of {len(claimants)} of that name: {owners}",
        remedy=f"Keep one of them: {cures}.",
    )
    return refused(replace(record, code="", reason="", remedy=""), (fault,))


def _repeated(record: PluginRecord, modules: Sequence[str]) -> PluginRecord:
    """One record for all the entry points of a name that one distribution declares."""
    blank = replace(record, module=modules[0], code="", reason="", remedy="")
    fault = PluginError(
        "FV108",
        name=record.title,
        rule=f"is declared {len(modules)} times by one distribution: {', '.join(modules)}",
        remedy=f"Keep one of the entry points in the pyproject.toml of {record.dist} and install that again, "
        "or tell its author.",
    )
    return refused(blank, (fault,))


def _source_gone(record: PluginRecord) -> FvError | None:
    if not record.editable or Path(record.location).is_dir():
        return None
    return PluginError(
        "FV110",
        name=f"dist {record} (editable, {record.location})",
        rule="source is gone",
        remedy=f"pip uninstall {record.dist}, or install it again from where its source is now.",
    )


def _place(dist: Distribution) -> tuple[str, bool]:
    """Where a distribution lies, and whether that is the folder of an editable source (PEP 610)."""
    with suppress(*_UNREADABLE):  # no record of an origin, or one of another kind: installed in the usual way
        origin = dist.origin
        url = urlparse(origin.url)
        if origin.dir_info.editable and url.scheme == "file":
            return unquote(url.path), True
    return str(_info(dist).parent), False


def _info(dist: Distribution) -> Path:
    """The folder of the metadata."""
    path: Path = dist._path  # type: ignore[attr-defined]  # the only name for it; told, never relied upon
    return path


def _name(dist: Distribution) -> str:
    try:
        return str(dist.name)
    except _UNREADABLE:
        return _info(dist).name.partition("-")[0]


def _requirements(lines: Sequence[str] | None) -> list[Requirement]:
    return [Requirement(line) for line in lines or ()]


def _holds(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})
