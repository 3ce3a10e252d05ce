"""Codes of memory and disks that are too small."""

from __future__ import annotations

from typing import Final

from fv_core.errors.codes.row import row

RESOURCE: Final = (
    row(
        "FV401", "does not fit in memory", 4, 503, "insufficient_memory",
        "The predicted peak is more than the device has free, or than `memory` allows, even if nothing else were "
        "there. `--dry-run` prints the figures; a smaller size, fewer frames or a smaller `--dtype` lowers them, and "
        "on an accelerator `--offload component`.",
    ),
    row(
        "FV402", "ran out of memory", 4, 503, "out_of_memory",
        "An allocation failed while the request ran. Its memory has been returned; other requests go on.",
    ),
    row(
        "FV403", "disk is full", 4, 507, "disk_full",
        "The disk filled up while the file was written. The partial file has been removed.",
    ),
    row(
        "FV404", "caches do not fit", 4, 503, "cache_full",
        "The caches of the request take more of one class than its whole budget (`Engine(cache_bytes=...)`), so it is "
        "refused before it starts. A model whose card does not state what its caches take (`--dry-run` tells) is let "
        "in, and fails with this code where the class turns out to be full. The message tells the bytes needed and "
        "available; other requests go on.",
    ),
    row(
        "FV405", "does not fit in memory now", 4, 503, "insufficient_memory_now",
        "The request would fit alone, but the memory it needs, or the room of a class of caches, is reserved for "
        "requests that are still open. `Engine.run_many` and `AsyncEngine` start such a request when there is room, "
        "with the same result.",
    ),
    row(
        "FV406", "weights cannot be stored", 4, 507, "store_unwritable",
        "Weights that were to sleep in a file could not be written under `FV_HOME`. The model is as it was.",
    ),
    row(
        "FV407", "model is in use", 4, 409, "model_in_use",
        "Weights cannot be put to sleep or unloaded while open requests need them. Close those, or wait for them.",
    ),
    row(
        "FV408", "changed weights would be lost", 4, 409, "weights_changed",
        "The weights were changed after they were loaded, so where they came from no longer has them. "
        "`Engine.sleep` keeps them; `discard=True` gives the changes up. Changes that nobody told of are found by the "
        "counters that torch keeps, which writes through `.data`, numpy and fused optimizers pass by: tell of those "
        "with `weights_changed`. Weights that were given to a component while it slept are lost when it wakes, so it "
        "does not.",
    ),
    row(
        "FV410", "queue is full", 4, 429, "queue_full",
        "An engine takes on a limited number of jobs at once. Try again when one of them has ended.",
    ),
    row(
        "FV411", "store is in use", 4, 409, "store_in_use",
        "One engine at a time uses a folder of stored jobs, or two would run the same ones. The folder is free again "
        "when that engine is closed, or when its process has ended, however it ended.",
    ),
)  # fmt: skip
