"""What a request claims of the device before anything of it is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fv_core.memory import Claim, Tag
from fv_core.runtime.adapters import AdapterStack
from fv_core.runtime.estimate import RunPlan
from fv_core.runtime.instance import ModelInstance, Offload


def claims_of(plan: RunPlan, instance: ModelInstance, stack: AdapterStack) -> list[Claim]:
    """The weights and adapters, which requests of one model share, and what the request needs beside them."""
    own = Claim(tag=Tag.ACTIVATIONS, bytes=plan.working_bytes)
    if instance.offload is Offload.COMPONENT:
        # One component is on the device at a time. With what every open request may hold beside it that is at most
        # the largest peak of one request, and the working memory of the others.
        turn = plan.peak_bytes_offloaded - plan.adapter_bytes - plan.working_bytes
        return [Claim(tag=Tag.WEIGHTS, bytes=turn, key=instance.key("")), *stack.claims(), own]
    return [*weight_claims(instance, plan.weights), *stack.claims(), own]


def weight_claims(instance: ModelInstance, components: Iterable[str]) -> Iterator[Claim]:
    """A claim for each component: what it takes, or will take when it is loaded or wakes."""
    for component_id in components:
        yield Claim(
            tag=Tag.WEIGHTS, bytes=instance.component_bytes(component_id), key=instance.key(component_id)
        )
