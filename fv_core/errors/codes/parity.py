"""Codes of parity claims and certificates."""

from __future__ import annotations

from typing import Final

from fv_core.errors.codes.row import row

PARITY: Final = (
    row(
        "FV601", "model is not certified here", 3, 503, "not_certified",
        "Certified runs were asked for. A certificate binds the card, the plugin's version, the sources of the plugin "
        "and of core's computing packages, the weights and the files beside them, the probes, precision, device, "
        "the number of threads and the library versions; every rung that the card claims needs one that passed and of "
        "which nothing has changed since. `fv parity certify ID` measures and writes them.",
    ),
    row(
        "FV602", "rung is not implemented", 2, 400, "rung_not_implemented",
        "The ladder is C0 component, C1 trajectory, C2 behaviour, C3 distribution and C4 artifact. fv measures C0 and "
        "C1; a claim of a higher one is refused by name, because nothing would check it.",
    ),
    row(
        "FV603", "nothing to compare with", 2, 400, "no_reference",
        "Parity is measured against the reference that the card's claim names and can run. This card makes no claim, "
        "or names no runner. `fv parity check ID --record FILE` and `--against FILE` compare runs of fv itself.",
    ),
    row(
        "FV604", "reference cannot run", 3, 503, "reference_unavailable",
        "The reference is absent, has another version than the card claims parity with, or raised. A claim names a "
        "version because another one may compute something else.",
    ),
    row(
        "FV605", "recording cannot be read", 2, 400, "invalid_recording",
        "The file is not a recording of this format, is damaged, or was made by another model.",
    ),
    row(
        "FV606", "run is not covered by certificates", 2, 400, "not_covered",
        "Certified runs were asked for, and certificates promise the plain model's bits. Fast numerics lets neighbours "
        "change bits, and an interceptor that alters the distribution changes them on purpose.",
    ),
)  # fmt: skip
