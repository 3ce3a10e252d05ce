"""One row of the registry of error codes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCode:
    """What one code means everywhere it can surface."""

    code: str
    title: str
    exit_code: int
    http_status: int
    wire_code: str
    explanation: str


def row(
    code: str, title: str, exit_code: int, http_status: int, wire_code: str, explanation: str
) -> ErrorCode:
    """A row, its values in the order in which they are read."""
    return ErrorCode(
        code=code,
        title=title,
        exit_code=exit_code,
        http_status=http_status,
        wire_code=wire_code,
        explanation=explanation,
    )
