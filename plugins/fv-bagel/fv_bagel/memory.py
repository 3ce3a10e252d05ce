"""Predicts what each component needs beside its weights, in bytes."""

from __future__ import annotations

from collections.abc import Mapping

from fv_core.card import Geometry


def mixture(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    return 0


def vision(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    return 0


def vae(geometry: Geometry, config: Mapping[str, object], dtype_bytes: int) -> int:
    return 0
