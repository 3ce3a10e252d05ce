"""Reads installed metadata; nothing else in fv does, because importing the backport replaces the stdlib finder."""

from __future__ import annotations

import importlib_metadata
from packaging.requirements import Requirement

from fv_core.plugins.record import PluginRecord

GROUP = "fv"


def discover() -> tuple[PluginRecord, ...]:
    """Every installed plugin, by name, without importing any."""
    found = []
    for point in importlib_metadata.entry_points(group=GROUP):
        assert point.dist is not None
        found.append(
            PluginRecord(
                name=point.name, module=point.value, dist=point.dist.name, version=point.dist.version
            )
        )
    return tuple(sorted(found, key=lambda record: record.name))


def requirement_versions(dist: str) -> dict[str, str]:
    """Installed versions of what a distribution requires, extras left out, sorted by name; "absent" for none."""
    requirements = map(Requirement, importlib_metadata.requires(dist) or ())
    needed = {
        each.name for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})
    }
    return {name: _version(name) for name in sorted(needed)}


def _version(dist: str) -> str:
    try:
        return importlib_metadata.version(dist)
    except importlib_metadata.PackageNotFoundError:
        return "absent"
