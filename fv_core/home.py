"""Where fv keeps what it writes for itself: records of pulled weights, jobs, certificates."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    """`FV_HOME` where it is set, else the platform's data folder for fv. The folder need not exist yet."""
    chosen = os.environ.get("FV_HOME")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_data_dir("fv", appauthor=False))
