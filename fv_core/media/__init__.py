"""Clips and the files they become. Loads numpy; PyAV and Pillow only once a file is written or read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fv_core.media.audio import Audio, audio_from_waveform
from fv_core.media.clip import Clip, frames_from_video
from fv_core.media.metadata import read_metadata
from fv_core.media.naming import automatic_path, sidecar_path
from fv_core.media.output import check_output
from fv_core.media.rate import exact_rate
from fv_core.media.sidecar import Sidecar, read_sidecar, write_sidecar

__all__ = [
    "Audio",
    "Clip",
    "Sidecar",
    "audio_from_waveform",
    "automatic_path",
    "check_output",
    "contact_sheet",
    "exact_rate",
    "frames_from_video",
    "read_metadata",
    "read_sidecar",
    "sidecar_path",
    "write_sidecar",
]


def contact_sheet(
    clips: Sequence[tuple[str, Clip]],
    path: str | Path,
    *,
    columns: int = 8,
    scale: int = 1,
    force: bool = False,
) -> Path:
    """Writes a PNG with one labelled row per clip; see `fv_core.media.sheet`."""
    from fv_core.media.sheet import write_sheet  # Pillow loads only when a sheet is drawn

    return write_sheet(clips, Path(path), columns=columns, scale=scale, force=force)
