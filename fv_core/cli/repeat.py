"""`--from`: on which device a recorded run is repeated, which settings it overrules, and what differs from then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fv_core.cli.asked import Asked
from fv_core.cli.options import REQUEST_FLAGS, Options
from fv_core.cli.output import Out
from fv_core.errors import RequestError
from fv_core.runtime.device import pick_device

if TYPE_CHECKING:
    from fv_core.runtime.engine import Engine


def usable_device(asked: Asked, options: Options) -> str:
    """The device to run on. A recorded one that is absent here gives way to `auto`; the difference is told."""
    if asked.recorded is None or "device" in options.flags:
        return asked.device
    try:
        pick_device(asked.device)
    except RequestError:
        return "auto"
    return asked.device


def overruled(asked: Asked, options: Options) -> Iterator[str]:
    """A sentence on the settings that a repeated run does not use; none where there are none."""
    if asked.recorded is None:
        return
    here = {name: getattr(options, name) != getattr(asked, name) for name in ("device", "dtype", "scale")}
    unused = [
        options.sources[name]
        for name in (*REQUEST_FLAGS, *here)
        if name in options.sources and here.get(name, True)
    ]
    if unused:
        yield f"not used, as --from repeats a run as it was: {', '.join(unused)}"


def tell_differences(asked: Asked, engine: Engine, out: Out) -> list[str]:
    """Says in which facts this run differs from the recorded one: where there are none, bytes will be equal."""
    if asked.recorded is None:
        return []
    from fv_core.runtime.environment import differences, environment
    from fv_core.runtime.records.provenance import weights_name

    then = asked.recorded.used
    instance = engine.instance(asked.card.model_id)
    facts = {"weights": (then.weights, weights_name(instance))}
    facts["extensions"] = (", ".join(then.extensions) or "none", "none")  # the command line enables none
    facts["dtype"] = (then.dtype, str(instance.dtype).removeprefix("torch."))
    told = [f"{name} {old} then, {new} now" for name, (old, new) in facts.items() if old != new]
    told += differences(then.environment, environment(asked.card, engine.device))
    for difference in told:
        out.warning(f"the frames may differ from the recorded run: {difference}")
    return told
