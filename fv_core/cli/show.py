"""A card for people: everything that `fv models show` tells of it."""

from __future__ import annotations

from collections.abc import Iterator

from fv_core.card import ModelCard, Provenance
from fv_core.cli.presence import Presence
from fv_core.errors import ParityError
from fv_core.runtime.records.ledger import rung_standing


def card_lines(card: ModelCard, weights: Presence) -> Iterator[str]:
    """The card, a section each for what it is made of, what it assumes and what it takes."""
    yield f"{card.model_id}  {card.summary}"
    yield from _section("card", {"family": card.family, "version": card.version, "digest": card.digest()})
    yield from _section("tasks", {task: " > ".join(_nodes(card, task)) for task in card.capabilities})
    yield from _section("components", dict(_components(card)))
    yield from _section("loops", dict(_loops(card)))
    yield from _section("recipe", dict(_recipe(card)))
    yield from _section("parity", dict(_parity(card)))
    yield from _section("defaults", dict(_defaults(card)))
    yield from _section("limits", dict(_limits(card)))
    yield from _section("params (--set)", dict(_params(card)))
    yield from _section("weights", dict(_weights(card, weights)))


def _section(title: str, facts: dict[str, str]) -> Iterator[str]:
    yield ""
    yield title
    width = max(map(len, facts), default=0)
    for name, fact in facts.items():
        yield f"  {name:<{width}}  {fact}"


def _nodes(card: ModelCard, task: str) -> Iterator[str]:
    programs = {str(known): program for known, program in card.programs.items()}
    return (node.id for node in programs[task].nodes)


def _components(card: ModelCard) -> Iterator[tuple[str, str]]:
    for name, spec in card.components.items():
        kept = "" if spec.dtype == "card" else f", kept in {spec.dtype}"
        places = (*spec.subfolders, *spec.files)
        folders = f", from {', '.join(places)}" if places else ""
        yield name, f"{spec.parameters:,} parameters{kept}{folders} ({spec.load})"


def _loops(card: ModelCard) -> Iterator[tuple[str, str]]:
    for name, spec in card.loops.items():
        binds = ", ".join(f"{role}={component}" for role, component in spec.binds.items())
        params = "".join(f", {key}={value}" for key, value in spec.params.items())
        yield name, f"{spec.semantics}, {binds}{params} ({spec.loop})"


def _recipe(card: ModelCard) -> Iterator[tuple[str, str]]:
    recipe = card.recipe
    yield "method", recipe.method
    yield "assumes", recipe.assumes_loop
    yield "steps", f"{recipe.steps}{' exactly' if recipe.steps_fixed else ''}"
    levels = ", ".join(f"{sigma:g}" for sigma in recipe.sigmas)
    yield "sigmas", levels or f"{recipe.sigma_rule}, shift {recipe.shift:g}"
    yield "guidance", f"{recipe.guidance:g}"
    yield "made in", recipe.precision or "a precision that is not stated"
    if recipe.made is not None:
        yield from _made(recipe.made)
    yield "requires", f"parity {recipe.consistency_required}" if recipe.consistency_required else "no parity"


def _made(made: Provenance) -> Iterator[tuple[str, str]]:
    yield "parents", "; ".join(made.parents) or "none: it began as its components are initialised"
    yield "data", f"{made.data}, digest {made.data_digest}"
    yield "trained", f"{made.steps} steps, seed {made.seed}"
    yield "command", made.command or "none: a program began it"
    yield "figures", ", ".join(f"{name} {value:.6g}" for name, value in made.figures.items())


def _parity(card: ModelCard) -> Iterator[tuple[str, str]]:
    claim = card.parity
    if claim is None:
        yield "claim", "none"
        return
    of = f", a transcription of {claim.transcribes}" if claim.transcribes else ""
    yield "claim", f"{', '.join(claim.rungs)} with {claim.reference} {claim.reference_version}{of}"
    for rung in claim.rungs:
        yield rung, _standing(card, rung)
    yield "tolerance", f"{claim.tolerance:g} in every tap, numerics reference"


def _standing(card: ModelCard, rung: str) -> str:
    try:
        standing = rung_standing(card, rung)
    except ParityError as error:  # a claim that is refused is told, not hidden
        return f"refused: {error.rule}"
    if standing.certificate is None:
        return f"not certified: {standing.reasons[0]}"
    env = standing.certificate.environment
    return f"certified for {env.device} {env.device_name}, threads {env.threads} ({standing.path})"


def _defaults(card: ModelCard) -> Iterator[tuple[str, str]]:
    defaults, precision = card.defaults, card.precision
    yield "clip", f"{defaults.size}, {defaults.frames} frames at {defaults.fps:g} fps"
    yield "negative", repr(defaults.negative_prompt)
    yield "dtype", f"{precision.accelerator}, on a CPU {precision.cpu}"


def _limits(card: ModelCard) -> Iterator[tuple[str, str]]:
    limits = card.limits
    yield "size", limits.size.legal()
    yield "frames", limits.frames.legal()
    yield "steps", f"{limits.steps[0]} to {limits.steps[1]}"
    yield "guidance", f"{limits.guidance[0]:g} (off) to {limits.guidance[1]:g}"
    yield "dtype", ", ".join(card.precision.legal)
    yield "devices", "; ".join(["one device", *map(str, card.parallelism)])


def _params(card: ModelCard) -> Iterator[tuple[str, str]]:
    for name, rule in card.params.items():
        yield name, f"{rule.legal()}, default {card.param_default(name)}: {rule.doc}"
    if not card.params:
        yield "none", ""


def _weights(card: ModelCard, weights: Presence) -> Iterator[tuple[str, str]]:
    yield "state", weights
    if (checkpoint := card.checkpoint) is not None:
        pinned = checkpoint.revision
        yield "repo", checkpoint.repo
        yield "revision", pinned or "not pinned: no commit has been verified, the newest is taken"
