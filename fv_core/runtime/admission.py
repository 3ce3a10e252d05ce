"""Refuses what cannot fit before anything of it is loaded."""

from __future__ import annotations

from fv_core.errors import ResourceError
from fv_core.runtime.device import free_bytes
from fv_core.runtime.estimate import RunPlan
from fv_core.runtime.instance import ModelInstance, Offload

GIB = 2**30


def admit(plan: RunPlan, instance: ModelInstance) -> None:
    """Raises:
    ResourceError: FV401, the predicted peak is more than the device has free.
    """
    offloaded = instance.offload is Offload.COMPONENT
    needed = (plan.peak_bytes_offloaded if offloaded else plan.peak_bytes) - instance.resident_bytes()
    free = free_bytes(instance.device)
    if needed > free:
        raise ResourceError(
            "FV401",
            name=f"{plan.request.model} at {plan.request.size}, {plan.request.frames} frames",
            rule=f"needs {needed / GIB:.1f} GiB more on {instance.device}, which has {free / GIB:.1f} GiB free",
            remedy="Use a smaller size, fewer frames, or offload=component on an accelerator.",
        )
