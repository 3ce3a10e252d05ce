"""`fv env`: what a report needs. It tells what it can even where torch or a plugin is broken."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from fv_core import __version__
from fv_core.cli.commands import Command, json_option
from fv_core.cli.output import Out, human_bytes
from fv_core.cli.presence import hub_cache
from fv_core.cli.settings import config_files
from fv_core.home import home
from fv_core.plugins import default_registry, plugin_records
from fv_core.plugins.discovery import requirement_versions
from fv_core.runtime.device import DeviceFacts, compute_threads, usable_devices


@dataclass(frozen=True, slots=True, kw_only=True)
class _Torch:
    """What torch can use here; `torch_error` says why it tells nothing."""

    devices: tuple[DeviceFacts, ...] = ()
    threads: int | None = None
    torch_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A path of fv's; `bytes` None where there is nothing."""

    name: str
    path: str
    bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plugin:
    name: str
    dist: str
    version: str
    state: str
    reason: str


@click.command(cls=Command)
@json_option
@click.pass_obj
def env(out: Out, as_json: bool) -> None:
    """Show versions, devices, paths and plugins, for reports."""
    torch, versions, places, plugins = _torch(), _versions(), list(_places()), list(_plugins())
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith("FV_")}
    python = f"{platform.python_version()} ({sys.executable})"
    if as_json:
        facts = {"fv": __version__, "python": python, "platform": platform.platform(), "versions": versions}
        listed = {"paths": [asdict(one) for one in places], "plugins": [asdict(one) for one in plugins]}
        out.document({**facts, **asdict(torch), **listed, "variables": variables})
        return
    out.lines(f"fv {__version__}, Python {python}", platform.platform())
    _section(out, "versions", versions.items())
    _section(out, "devices", _device_rows(torch))
    _section(out, "paths", ((one.name, f"{one.path}  ({_told_size(one)})") for one in places))
    _section(out, "variables", variables.items())
    _section(out, "plugins", ((one.name, _told_plugin(one)) for one in plugins))


def _section(out: Out, title: str, facts: Iterable[tuple[str, str]]) -> None:
    listed = list(facts)
    width = max((len(name) for name, _ in listed), default=0)
    rows = [f"  {name:<{width}}  {fact}" for name, fact in listed]
    out.lines("", title, *(rows or ["  none"]))


def _torch() -> _Torch:
    try:
        return _Torch(devices=usable_devices(), threads=compute_threads())
    except Exception as error:  # whatever keeps torch from loading belongs in the report
        return _Torch(torch_error=f"{type(error).__name__}: {error}")


def _device_rows(torch: _Torch) -> Iterator[tuple[str, str]]:
    for one in torch.devices:
        memory = f"{human_bytes(one.free_bytes)} of {human_bytes(one.total_bytes)} free"
        yield one.name, f"{one.hardware}, {memory}"
    yield ("threads", str(torch.threads)) if torch.torch_error is None else ("torch", torch.torch_error)


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for dist in ("fv-core", *(record.dist for record in plugin_records())):
        try:
            found |= requirement_versions(dist)
        except (ImportError, ValueError) as error:  # it is not installed, or its metadata is malformed
            found[f"{dist} requires"] = str(error)
    return dict(sorted(found.items()))


def _places() -> Iterator[_Place]:
    here, user = config_files()
    own = {"settings here": here.absolute(), "settings of the user": user, "FV_HOME": home()}
    for name, path in (own | {"hub cache": hub_cache()}).items():
        yield _Place(name=name, path=str(path), bytes=_size(path))


def _size(path: Path) -> int | None:
    if path.is_file():
        return path.stat().st_size
    if not path.is_dir():
        return None
    return sum((Path(folder) / name).lstat().st_size for folder, _, names in os.walk(path) for name in names)


def _told_size(place: _Place) -> str:
    return "absent" if place.bytes is None else human_bytes(place.bytes)


def _plugins() -> Iterator[_Plugin]:
    for record in default_registry().check():
        yield _Plugin(
            name=record.name,
            dist=record.dist,
            version=record.version,
            state=record.state,
            reason=f"error[{record.code}]: {record.reason}" if record.code else record.reason,
        )


def _told_plugin(plugin: _Plugin) -> str:
    return f"{plugin.dist} {plugin.version}, {plugin.state} {' '.join(plugin.reason.split())}".rstrip()
