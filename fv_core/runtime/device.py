"""Which device and precision a run uses. Names are checked without torch, which loads when one is picked."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from fv_core.card import ModelCard
from fv_core.errors import RequestError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """One device that torch can use here. Memory in bytes; mps shares the host's."""

    name: str
    hardware: str
    free_bytes: int
    total_bytes: int


def check_device(name: str) -> None:
    """Refuses what is no device name; whether the device is here is seen when it is picked.

    Raises:
        RequestError: FV312.
    """
    if not isinstance(name, str):
        raise _unusable(name, "is not a device", legal="auto, cpu, cuda, cuda:N, mps")
    kind, _, index = name.partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (":" in name and not _is_index(kind, index)):
        raise _unusable(name, "is not a device", legal="auto, cpu, cuda, cuda:N, mps")


def check_dtype(name: str, card: ModelCard) -> None:
    """Raises:
    RequestError: FV313, neither `auto` nor a precision of the card.
    """
    legal = ("auto", *card.precision.legal)
    if name not in legal:
        raise RequestError(
            "FV313",
            name="dtype",
            value=name,
            rule=f"is not a precision of {card.model_id}",
            legal=", ".join(legal),
            remedy="Leave it at auto for the card's choice.",
        )


def pick_device(name: str) -> torch.device:
    """`auto` is the first of cuda, mps, cpu that torch can use.

    Raises:
        RequestError: FV312, not a device name, or not usable here.
    """
    import torch

    check_device(name)
    if name == "auto":
        return torch.device(_best())
    kind, _, index = name.partition(":")
    if kind == "cuda" and not torch.cuda.is_available():
        raise _unusable(name, "is not available: torch finds no CUDA device")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise _unusable(name, "does not exist", legal=f"cuda:0 to cuda:{torch.cuda.device_count() - 1}")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise _unusable(name, "is not available: torch finds no Metal device")
    return torch.device(name)


def pick_dtype(name: str, card: ModelCard, device: torch.device) -> torch.dtype:
    """`auto` is the card's precision for the kind of device.

    Raises:
        RequestError: FV313, not a precision of the card.
    """
    import torch

    check_dtype(name, card)
    precision = card.precision
    chosen = (precision.cpu if device.type == "cpu" else precision.accelerator) if name == "auto" else name
    return getattr(torch, chosen)  # type: ignore[no-any-return]


def free_bytes(device: torch.device) -> int:
    """Memory that new allocations on `device` can use now."""
    import torch

    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(
            device
        )  # by torch, for itself
        return free + kept
    return int(psutil.virtual_memory().available)  # mps shares the host's memory


def total_bytes(device: torch.device) -> int:
    """Memory of `device`."""
    import torch

    if device.type == "cuda":
        _, total = torch.cuda.mem_get_info(device)
        return total
    return int(psutil.virtual_memory().total)  # mps shares the host's memory


def usable_devices() -> tuple[DeviceFacts, ...]:
    """Every device that torch can use here, the one that `auto` picks first."""
    import torch

    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    names += ["mps"] if torch.backends.mps.is_available() else []
    return tuple(_facts(torch.device(name)) for name in (*names, "cpu"))


def compute_threads() -> int:
    """Threads of torch's kernels on the CPU."""
    import torch

    return torch.get_num_threads()


def _facts(device: torch.device) -> DeviceFacts:
    import torch

    hardware = f"{platform.processor() or platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    free, total = free_bytes(device), total_bytes(device)
    return DeviceFacts(name=str(device), hardware=hardware, free_bytes=free, total_bytes=total)


def _is_index(kind: str, index: str) -> bool:
    return kind == "cuda" and index.isascii() and index.isdigit()


def _best() -> str:
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _unusable(name: object, rule: str, legal: str = "") -> RequestError:
    return RequestError(
        "FV312",
        name="device",
        value=name,
        rule=rule,
        legal=legal,
        remedy="`fv env` lists what torch can use here.",
    )
