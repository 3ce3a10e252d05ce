"""What made a clip: the facts told with every result."""

from __future__ import annotations

from collections.abc import Sequence

from fv_core.extend.chain import Enabled
from fv_core.plugins.model_folder import lies_in
from fv_core.request import Used
from fv_core.runtime.environment import environment, environment_hash
from fv_core.runtime.instance import SEED, ModelInstance
from fv_core.runtime.job import Job
from fv_core.runtime.records.ledger import plugin_of


def plugin_name(instance: ModelInstance) -> str:
    """Distribution and version that brought the card; "" for a card made in the program."""
    return plugin_of(instance.card)


def weights_name(instance: ModelInstance) -> str:
    """What names the weights: repository and revision in the hub's cache, a folder's name and fingerprint, the seed;
    and how often they were changed since.
    """
    origin = _origin(instance)
    return f"{origin}, changed {instance.version} times" if instance.changed else origin


def _origin(instance: ModelInstance) -> str:
    folder, checkpoint = instance.folder, instance.card.checkpoint
    if folder is None:
        return f"seed {SEED}"
    if checkpoint is not None and folder.parent.name == "snapshots":
        return f"{checkpoint.repo}@{folder.name}"
    return f"{folder.name}#{instance.fingerprint()}"


def dtype_name(instance: ModelInstance) -> str:
    """The run's precision, as torch names it."""
    return str(instance.dtype).removeprefix("torch.")


def used(job: Job, extensions: Sequence[Enabled]) -> Used:
    """The settled facts of a finished job."""
    request, instance = job.run.request, job.run.instance
    env = environment(instance.card, instance.device)
    return Used(
        model=request.model,
        card_digest=instance.digest,
        plugin=plugin_name(instance),
        weights=weights_name(instance),
        seed=request.seed,
        size=request.size,
        frames=request.frames,
        fps=request.fps,
        steps=request.steps,
        guidance=request.guidance,
        sampler=instance.card.recipe.assumes_loop,
        numerics=request.numerics,
        dtype=dtype_name(instance),
        params=request.params,
        extensions=tuple(map(str, extensions)),
        environment=env,
        environment_hash=environment_hash(env),
        seconds=job.seconds,
        adjusted=job.run.notes,
        adapters=job.run.adapters.told(),
        model_folder=lies_in(instance.card),
    )
