"""What a request claims of the device before anything of it is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fv_core.memory import Claim, Tag
from fv_core.runtime.estimate import RunPlan
from fv_core.runtime.instance import ModelInstance, Offload


def claims_of(plan: RunPlan, instance: ModelInstance) -> list[Claim]:
    """The weights, which requests of one model share, and what the request needs beside them."""
    working = plan.peak_bytes - sum(plan.weights.values())
    own = Claim(tag=Tag.ACTIVATIONS, bytes=working)
    if instance.offload is Offload.COMPONENT:
        # One component is on the device at a time. With what every open request may hold beside it that is at most
        # the largest peak of one request, and the working memory of the others.
        turn = plan.peak_bytes_offloaded - working
        return [Claim(tag=Tag.WEIGHTS, bytes=turn, key=instance.key("")), own]
    return [*weight_claims(instance, plan.weights), own]


def weight_claims(instance: ModelInstance, stated: Mapping[str, int]) -> Iterator[Claim]:
    """A claim for each component: what it takes, or, while it is not loaded, the bytes that its card states."""
    for component_id, size in stated.items():
        taken = instance.component_bytes(component_id) or size
        yield Claim(tag=Tag.WEIGHTS, bytes=taken, key=instance.key(component_id))
