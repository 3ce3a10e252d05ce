"""Every error fv raises: the exception tree first, one class per cause.

FvError
+-- PluginError      FV1xx  a plugin cannot be found or loaded
+-- CardError        FV20x  a card breaks a load-time rule
+-- WeightsError     FV25x  weights are absent, damaged or not the card's
+-- RequestError     FV3xx  a request asks for something that is not legal
+-- ResourceError    FV4xx  memory, disk or an output file is refused
+-- RunError         FV5xx  a loop, component or interceptor failed
|   +-- Cancelled    FV510  the caller cancelled
+-- ParityError      FV6xx  a parity claim cannot be checked, or is not certified
+-- TrainError       FV7xx  a training cannot start, or cannot go on
"""

from __future__ import annotations

from fv_core.errors.codes import CODES, ErrorCode

__all__ = [
    "CODES",
    "Cancelled",
    "CardError",
    "ErrorCode",
    "FvError",
    "ParityError",
    "PluginError",
    "RequestError",
    "ResourceError",
    "RunError",
    "TrainError",
    "WeightsError",
]


class FvError(Exception):
    """One refused or failed thing; its text is the code, the message and the remedy in one line.

    Args:
        code: a code registered in `fv_core.errors.codes`.
        name: what is at fault ("size", "plugin wan21", a file).
        value: the offending value as the user gave it; None when the fault has no value.
        rule: the rule it breaks, a clause that follows the value.
        legal: the legal set, in words; "" when the rule already says it.
        remedy: what to do about it, a sentence.
    """

    def __init__(
        self, code: str, *, name: str, rule: str, remedy: str, value: object = None, legal: str = ""
    ) -> None:
        self.entry: ErrorCode = CODES[code]
        self.name = name
        self.value = value
        self.rule = rule
        self.legal = legal
        self.remedy = remedy
        super().__init__(self.message)

    @property
    def code(self) -> str:
        """The registered code, such as "FV302"."""
        return self.entry.code

    @property
    def message(self) -> str:
        """`name value: rule (legal: ...)`, without the remedy."""
        shown = "" if self.value is None else f" {self.value!r}"
        legal = f" (legal: {self.legal})" if self.legal else ""
        return f"{self.name}{shown}: {self.rule}{legal}"

    def __str__(self) -> str:
        return f"{self.code} {self.message}. {self.remedy}"

    def to_json(self) -> dict[str, object]:
        """The error as the CLI's `--json` and the server print it."""
        return {
            "code": self.code,
            "type": self.entry.wire_code,
            "message": self.message,
            "hint": self.remedy,
            "details": {
                "name": self.name,
                "value": None if self.value is None else str(self.value),
                "rule": self.rule,
                "legal": self.legal,
            },
        }

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling that process pools use.
        facts = (self.code, self.name, self.value, self.rule, self.legal, self.remedy)
        return (_rebuild, (type(self), *facts))


class PluginError(FvError):
    """A plugin is absent, broken or incompatible."""


class CardError(FvError):
    """A card breaks a load-time rule."""


class WeightsError(FvError):
    """Weights are absent, damaged, or not those of the card."""


class RequestError(FvError):
    """A request asks for something that is not legal for its card."""


class ResourceError(FvError):
    """Memory, disk or an output path is refused."""


class RunError(FvError):
    """A loop, a component or an interceptor failed while a request ran."""


class Cancelled(RunError):
    """The caller cancelled the request. `partial` holds the `MediaChunk`s that were final by then, in order."""

    partial: tuple[object, ...] = ()


class ParityError(FvError):
    """A parity claim cannot be checked, or is not certified where it has to be."""


class TrainError(FvError):
    """A training cannot start as it is set up, or cannot go on."""


def _rebuild(
    kind: type[FvError], code: str, name: str, value: object, rule: str, legal: str, remedy: str
) -> FvError:
    return kind(code, name=name, value=value, rule=rule, legal=legal, remedy=remedy)
