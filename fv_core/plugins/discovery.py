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
    settled = [_settled(record, by_name[record.name]) for record in records]
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
    return {name: _version(name) for name in sorted(needed)}


def extra_with(dist: str, module: str) -> str | None:
    """The extra of `dist` that requires a distribution of the module's name; None where no extra does."""
    wanted = canonicalize_name(module.partition(".")[0])
    try:
        found = importlib_metadata.distribution(dist)
    except importlib_metadata.PackageNotFoundError:
        return None
    extras = found.metadata.get_all("Provides-Extra") or []
    for each in _requirements(found.requires):
        for extra in extras if canonicalize_name(each.name) == wanted and not _holds(each) else ():
            if each.marker is not None and each.marker.evaluate({"extra": extra}):
                return str(extra)
    return None


def core_mismatch(record: PluginRecord, requires: Sequence[str] | None) -> FvError | None:
    """FV109 where the requirements exclude this fv-core; a pre-release counts as its version."""
    for each in _requirements(requires):
        core = canonicalize_name(each.name) == CORE and _holds(each)
        if core and not each.specifier.contains(__version__, prereleases=True):
            return PluginError(
                "FV109",
                name=record.title,
                rule=f"needs {CORE} {each.specifier}, have {__version__}",
                remedy=f"Install versions that fit: pip install --upgrade {CORE} {record.dist}.",
            )
    return None


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
            fault = core_mismatch(record, dist.requires) or _source_gone(record)
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
    owners = " and ".join(f"{one} ({one.location})" for one in sorted(claimants, key=str))
    cures = " or ".join(f"pip uninstall {dist}" for dist in sorted({one.dist for one in claimants}))
    fault = PluginError(
        "FV108",
        name=record.title,
        rule=f"is one of {len(claimants)} of that name: {owners}",
        remedy=f"Keep one of them: {cures}.",
    )
    return refused(replace(record, code="", reason="", remedy=""), (fault,))


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


def _version(dist: str) -> str:
    try:
        return importlib_metadata.version(dist)
    except importlib_metadata.PackageNotFoundError:
        return "absent"
