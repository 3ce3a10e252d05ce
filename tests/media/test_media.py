"""The package opens without the libraries that only files need."""

from __future__ import annotations

import json
import subprocess
import sys

import fv_core.media


def test_import_loads_no_codec_library() -> None:
    code = "import fv_core.media, json, sys; json.dump(sorted({'av', 'PIL', 'torch'} & set(sys.modules)), sys.stdout)"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(ran.stdout) == []


def test_public_names_are_pinned_and_exist() -> None:
    assert fv_core.media.__all__ == [
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
    assert all(hasattr(fv_core.media, name) for name in fv_core.media.__all__)
