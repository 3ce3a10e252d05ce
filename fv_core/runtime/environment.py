"""The numeric environment of this process: what must be equal for equal bytes."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch

from fv_core import codec
from fv_core.card import ModelCard
from fv_core.plugins import record_of
from fv_core.plugins.discovery import requirement_versions
from fv_core.request import Environment

_CPUINFO: Final = Path("/proc/cpuinfo")


def environment(card: ModelCard, device: torch.device) -> Environment:
    """The environment in which `card` runs on `device`, with the versions of what its plugin requires."""
    return Environment(
        device=device.type,
        device_name=_device_name(device),
        instructions=torch.backends.cpu.get_cpu_capability(),
        threads=torch.get_num_threads(),
        platform=f"{platform.system()} {platform.machine()}",
        versions=_versions(card),
        processor=_processor(),
        settings=settings(device),
    )


def environment_hash(env: Environment) -> str:
    """16 hex digits; equal hashes promise equal bytes for equal requests."""
    return codec.digest(env)[:16]


def differences(then: Environment, now: Environment) -> tuple[str, ...]:
    """What differs between two environments, a phrase each ("torch 2.12.0 then, 2.13.0 now")."""
    old, new = _flat(then), _flat(now)
    names = sorted(old.keys() | new.keys())
    return tuple(
        f"{name} {old.get(name, 'absent')} then, {new.get(name, 'absent')} now"
        for name in names
        if old.get(name) != new.get(name)
    )


def _flat(env: Environment) -> dict[str, str]:
    facts = {
        name: str(getattr(env, name))
        for name in ("device", "device_name", "instructions", "threads", "platform", "processor")
    }
    return facts | dict(env.settings) | dict(env.versions)


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


@cache
def _processor() -> str:
    """The CPU's model: libraries choose their kernels by it."""
    try:
        lines = _CPUINFO.read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(models), "") or platform.processor() or platform.machine()


def settings(device: torch.device) -> dict[str, str]:
    """Switches of torch, as they are now in this thread, that decide which kernels run and how they round."""
    kernels = {
        "flash": torch.backends.cuda.flash_sdp_enabled(),
        "efficient": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "cudnn": torch.backends.cuda.cudnn_sdp_enabled(),
        "math": torch.backends.cuda.math_sdp_enabled(),
    }
    autocast = torch.is_autocast_enabled(device.type)
    mkldnn: Any = torch.backends.mkldnn  # its stubs lack some of the switches, and so do those of cudnn
    cudnn: Any = torch.backends.cudnn
    matmul = torch.backends.cuda.matmul
    sums = {
        "fp16": matmul.allow_fp16_reduced_precision_reduction,
        "bf16": matmul.allow_bf16_reduced_precision_reduction,
    }
    return {
        "float32 matmul precision": _matmul_precision(),
        "attention kernels": " ".join(name for name, enabled in kernels.items() if enabled) or "none",
        "mkldnn": "on" if torch.backends.mkldnn.enabled else "off",
        "onednn precision": f"matmul {mkldnn.matmul.fp32_precision}, convolution {mkldnn.conv.fp32_precision}",
        "cudnn": f"{'on' if cudnn.enabled else 'off'}, convolution {cudnn.conv.fp32_precision}, "
        f"benchmark {cudnn.benchmark}, deterministic {cudnn.deterministic}",
        "reduced sums": " ".join(name for name, allowed in sums.items() if allowed) or "none",
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "default dtype": str(torch.get_default_dtype()),
        "autocast": str(torch.get_autocast_dtype(device.type)) if autocast else "off",
    }


def _matmul_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch's older and newer switches were both set: only the newer ones can be read
        return f"cuda {torch.backends.cuda.matmul.fp32_precision}, cudnn {torch.backends.cudnn.conv.fp32_precision}"  # type: ignore[attr-defined]


@cache
def _dist_versions(dist: str) -> dict[str, str]:
    return requirement_versions(dist)


def _versions(card: ModelCard) -> dict[str, str]:
    record = record_of(card)
    if record is None:
        return {"torch": torch.__version__}
    return {**_dist_versions(record.dist), record.dist: record.version, "torch": torch.__version__}
