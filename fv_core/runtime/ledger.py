"""The ledger: certificates of this machine under fv's home, and those that a plugin ships. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fv_core.card import ModelCard, Rung
from fv_core.card.certificate import Certificate, misfits
from fv_core.errors import ParityError
from fv_core.home import home
from fv_core.plugins import record_of

SHIPPED = Path("assets") / "certificates"
"""Where a plugin's package keeps its ledger."""

IMPLEMENTED = (Rung.COMPONENT, Rung.TRAJECTORY)
"""The rungs that fv can measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of a ledger. `certificate` None: it cannot be read, and `unreadable` says why."""

    path: Path
    certificate: Certificate | None
    unreadable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one claimed rung stands. Certified by `entry` where that is not None; else `reasons` say why not."""

    rung: Rung
    entry: Entry | None
    reasons: tuple[str, ...]

    @property
    def certified(self) -> bool:
        return self.entry is not None


def own_ledger() -> Path:
    """The folder of this machine's certificates; it need not exist yet."""
    return home() / "certificates"


def entries(card: ModelCard) -> Iterator[Entry]:
    """Every certificate that names the card's model, this machine's first, and every file that cannot be read."""
    for path in _files(card):
        try:
            entry = Entry(path=path, certificate=Certificate.from_json(path.read_text()))
        except (OSError, ValueError) as error:
            yield Entry(path=path, certificate=None, unreadable=str(error))
        else:
            yield entry


def file_name(model: str, rung: Rung, environment_hash: str) -> str:
    """The name of a certificate's file: a newer measurement in the same environment replaces it."""
    return f"{_stem(model)}.{rung}.{environment_hash}.json"


def standings(
    card: ModelCard, machine: Callable[[Certificate], Iterable[str]] = lambda certificate: ()
) -> tuple[Standing, ...]:
    """Each claimed rung as far as it shows without weights and device: seals, card, plugin, reference, verdict.

    Args:
        machine: what else is wrong with a certificate, a sentence each, where the weights are loaded.

    Raises:
        ParityError: FV602, the card claims a rung that fv cannot measure.
    """
    found = list(entries(card))

    def faults(certificate: Certificate) -> list[str]:
        return [*misfits(certificate, card, plugin_of(card)), *machine(certificate)]

    return tuple(_standing(rung, found, faults) for rung in claimed_rungs(card))


def claimed_rungs(card: ModelCard) -> tuple[Rung, ...]:
    """Raises:
    ParityError: FV602, one of them is not implemented.
    """
    claim = card.parity
    return () if claim is None else tuple(map(implemented, claim.rungs))


def implemented(rung: str) -> Rung:
    """The rung of this name.

    Raises:
        ParityError: FV602, fv cannot measure it.
    """
    if rung not in IMPLEMENTED:
        raise ParityError(
            "FV602",
            name="parity rung",
            value=str(rung),
            rule="is known by name only" if rung in tuple(Rung) else "is no rung of the ladder",
            legal=", ".join(IMPLEMENTED),
            remedy="Claim and check what is measured.",
        )
    return Rung(rung)


def plugin_of(card: ModelCard) -> str:
    """Distribution and version that brought the card; "" for a card made in the program."""
    record = record_of(card)
    return "" if record is None else str(record)


def _standing(rung: Rung, found: list[Entry], faults: Callable[[Certificate], list[str]]) -> Standing:
    reasons: list[str] = []
    for entry in found:
        if entry.certificate is None:
            reasons.append(f"{entry.path.name} cannot be read: {entry.unreadable}")
        elif entry.certificate.rung is rung:
            wrong = faults(entry.certificate)
            if not wrong:
                return Standing(rung=rung, entry=entry, reasons=())
            reasons += [f"{entry.path.name}: {fault}" for fault in wrong]
    return Standing(rung=rung, entry=None, reasons=tuple(reasons) or ("there is no certificate of it",))


def _files(card: ModelCard) -> Iterator[Path]:
    for folder in (own_ledger(), *_shipped(card)):
        yield from sorted(folder.glob(f"{_stem(card.model_id)}.C?.*.json"))


def _shipped(card: ModelCard) -> Iterator[Path]:
    record = record_of(card)
    spec = None if record is None else find_spec(record.module)
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield Path(root) / SHIPPED


def _stem(model: str) -> str:
    return model.replace("/", "-")
