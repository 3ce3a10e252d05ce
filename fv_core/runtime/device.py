"""Which device and precision a run uses."""

from __future__ import annotations

import psutil
import torch

from fv_core.card import ModelCard
from fv_core.errors import RequestError


def pick_device(name: str) -> torch.device:
    """`auto` is the first of cuda, mps, cpu that torch can use.

    Raises:
        RequestError: FV312, not a device name, or not usable here.
    """
    if name == "auto":
        return torch.device(_best())
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not (kind == "cuda" and index.isdecimal())):
        raise _unusable(name, "is not a device", legal="auto, cpu, cuda, cuda:N, mps")
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
    precision = card.precision
    chosen = (precision.cpu if device.type == "cpu" else precision.accelerator) if name == "auto" else name
    if chosen not in precision.legal:
        raise RequestError(
            "FV313",
            name="dtype",
            value=name,
            rule=f"is not a precision of {card.model_id}",
            legal=", ".join(("auto", *precision.legal)),
            remedy="Leave it at auto for the card's choice.",
        )
    return getattr(torch, chosen)  # type: ignore[no-any-return]


def free_bytes(device: torch.device) -> int:
    """Memory that new allocations on `device` can use now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    return int(psutil.virtual_memory().available)  # mps shares the host's memory


def _best() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _unusable(name: str, rule: str, legal: str = "") -> RequestError:
    return RequestError(
        "FV312", name="device", value=name, rule=rule, legal=legal, remedy="`fv env` lists what torch can use here."
    )
