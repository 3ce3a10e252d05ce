"""The ledger: certificates of this machine under fv's home, and those that a plugin ships. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fv_core.card import IMPLEMENTED, ModelCard, Rung
from fv_core.card.certificate import Certificate, misfits
from fv_core.errors import ParityError
from fv_core.home import home
from fv_core.plugins import record_of
from fv_core.runtime.records.sources import SHIPPED, code_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of a ledger. `certificate` None: it cannot be read, and `unreadable` says why."""

    path: Path
    certificate: Certificate | None
    unreadable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one claimed rung stands: certified by the certificate in `path`, or by None, and `reasons` say why not."""

    rung: Rung
    certificate: Certificate | None = None
    path: Path | None = None
    reasons: tuple[str, ...] = ()

    @property
    def certified(self) -> bool:
        return self.certificate is not None


def own_ledger() -> Path:
    """The folder of this machine's certificates; it need not exist yet."""
    return home() / "certificates"


def entries(card: ModelCard) -> Iterator[Entry]:
    """Every certificate that names the card's model, this machine's first, and every file that cannot be read."""
    for path in _files(card):
        try:
            certificate = Certificate.from_json(path.read_text())
        except (OSError, ValueError) as error:
            yield Entry(path=path, certificate=None, unreadable=str(error))
        else:
            yield Entry(path=path, certificate=certificate)


def file_name(model: str, rung: Rung, environment_hash: str) -> str:
    """The name of a certificate's file: a newer measurement in the same environment replaces it."""
    return f"{_stem(model)}.{rung}.{environment_hash}.json"


def rung_standing(
    card: ModelCard, rung: str, machine: Callable[[Certificate], Iterable[str]] = lambda certificate: ()
) -> Standing:
    """A rung as far as it shows without weights and device: seals, card, plugin, code, reference, verdict.

    Args:
        machine: what else is wrong with a certificate, a sentence each, where the weights are loaded.

    Raises:
        ParityError: FV602, fv cannot measure the rung.
    """
    wanted, reasons = implemented(rung), list[str]()
    code = code_hash(card)
    for entry in entries(card):
        certificate = entry.certificate
        if certificate is None:
            reasons.append(f"{entry.path.name} cannot be read: {entry.unreadable}")
        elif certificate.rung is wanted:
            faults = [*misfits(certificate, card, plugin_of(card), code), *machine(certificate)]
            if not faults:
                return Standing(rung=wanted, certificate=certificate, path=entry.path)
            reasons += [f"{entry.path.name}: {fault}" for fault in faults]
    return Standing(rung=wanted, reasons=tuple(reasons) or ("there is no certificate of it",))


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
