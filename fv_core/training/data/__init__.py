"""Where clips and captions come from: kinds of sources, modules with a `Config` and a `build`."""

from __future__ import annotations

from typing import Final

SOURCES: Final[dict[str, str]] = {
    "folder": "fv_core.training.data.folder",
    "shapes": "fv_core.training.data.shapes",
}
"""The module of each kind (`contract.SourceModule`), by the name that [data] gives."""
