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
            PluginRecord(name=point.name, module=point.value, dist=point.dist.name, version=point.dist.version)
        )
    return tuple(sorted(found, key=lambda record: record.name))


def requirement_versions(dist: str) -> dict[str, str]:
    """Installed versions of what a distribution requires, extras left out, sorted by name."""
    versions = {}
    for line in importlib_metadata.requires(dist) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            versions[requirement.name] = importlib_metadata.version(requirement.name)
    return dict(sorted(versions.items()))
