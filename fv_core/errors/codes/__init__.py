"""The registry of error codes: exit code, HTTP status and wire code of each, and what `fv explain` says.

Exit codes: 1 the work failed, 2 usage, 3 plugin, card or weights cannot be loaded, 4 resources refused,
130 cancelled. The wire code is the `type` field of an OpenAI-style error body.

A file for each family; a code is raised somewhere, and documented in docs/errors.md.
"""

from __future__ import annotations

from typing import Final

from fv_core.errors.codes.card import CARD
from fv_core.errors.codes.parity import PARITY
from fv_core.errors.codes.plugin import PLUGIN
from fv_core.errors.codes.request import REQUEST
from fv_core.errors.codes.resource import RESOURCE
from fv_core.errors.codes.row import ErrorCode
from fv_core.errors.codes.run import RUN
from fv_core.errors.codes.training import TRAINING
from fv_core.errors.codes.weights import WEIGHTS

__all__ = ["CODES", "ErrorCode"]

CODES: Final[dict[str, ErrorCode]] = {
    row.code: row
    for family in (PLUGIN, CARD, WEIGHTS, REQUEST, RESOURCE, RUN, PARITY, TRAINING)
    for row in family
}
