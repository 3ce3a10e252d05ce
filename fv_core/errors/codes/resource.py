"""Codes of memory and disks that are too small."""

from __future__ import annotations

from typing import Final

from fv_core.errors.codes.row import row

RESOURCE: Final = (
    row(
        "FV401", "does not fit in memory", 4, 503, "insufficient_memory",
        "The predicted peak is more than the device has free. `--dry-run` prints the figures; a smaller size, "
        "fewer frames or `--offload component` lowers them.",
    ),
    row(
        "FV402", "ran out of memory", 4, 503, "out_of_memory",
        "An allocation failed while the request ran. Its memory has been returned; other requests go on.",
    ),
    row(
        "FV403", "disk is full", 4, 507, "disk_full",
        "The disk filled up while the file was written. The partial file has been removed.",
    ),
)  # fmt: skip
