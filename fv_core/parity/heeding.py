"""A gate on what a card heeds: a request that differs in its seed or its prompt comes to something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice, permutations
from typing import Any

from fv_core.parity.bits import Bits, bits
from fv_core.parity.taps import record
from fv_core.parity.trial import Finding, Trial
from fv_core.request import Numerics, Request
from fv_core.runtime.requests.resolve import SEEDS, resolve

_TRIES = 3


def inputs(trial: Trial) -> Finding:
    """Another seed changes what a request yields, and so does another prompt of as many letters and words.

    Where a request yields a text, the likeliest words may be the same all the same: there a prompt counts as heeded
    that changes what any component returned, and a task of text alone need not read the seed. A request with an input
    that neither changes is all given by it, as a clip of one frame made from an image is, and is left out.
    """
    wrong, of = [], 0
    for number, (request, alone) in enumerate(zip(trial.requests, trial.alone, strict=True), 1):
        settled = resolve(request, trial.card, Numerics.EXACT)
        artifacts = trial.card.programs[settled.task].artifacts
        look = _returned if artifacts.get("text") in alone else _yielded
        heeded = {
            "prompt": _changes(trial, request, look, [{"prompt": one} for one in reworded(settled.prompt)])
        }
        if set(artifacts) != {"text"}:
            seeds = [{"seed": (settled.seed + more) % SEEDS} for more in range(1, _TRIES)]
            heeded["seed"] = _changes(trial, request, _yielded, seeds)
        if any(heeded.values()) or not settled.inputs:
            of += len(heeded)
            wrong += [
                f"request {number} comes to the same with another {what}"
                for what, ok in heeded.items()
                if not ok
            ]
    return Finding(wrong=wrong, of=of, counted="inputs that change nothing")


def reworded(prompt: str) -> list[str]:
    """A few other prompts of the same number of letters and words, and of the same words where it has them.

    One word is said twice in place of another as long as it, or two words change places: whoever tells prompts apart by
    their length, in letters or in tokens, takes them for one.
    """
    words = prompt.split(" ")
    return list(islice(dict.fromkeys(one for one in _others(words) if one != prompt), 2 * _TRIES))


def _others(words: list[str]) -> Iterator[str]:
    for to, of in islice(permutations(range(len(words)), 2), 1000):
        if to and len(words[to]) == len(words[of]) and words[to] != words[of]:
            yield _with(words, {to: words[of]})
    for one, other in combinations(range(1 if len(words) > 2 else 0, len(words)), 2):
        yield _with(words, {one: words[other], other: words[one]})
    yield _with(words, {0: words[0][::-1]})
    yield _with(words, {0: ("y" if words[0].startswith("x") else "x") * len(words[0])})


def _with(words: list[str], changed: dict[int, str]) -> str:
    return " ".join(changed.get(number, word) for number, word in enumerate(words))


def _changes(
    trial: Trial,
    request: Request,
    look: Callable[[Trial, Request], Bits],
    others: Sequence[Mapping[str, Any]],
) -> bool:
    told = look(trial, request)
    return any(look(trial, replace(request, **other)) != told for other in others)


def _yielded(trial: Trial, request: Request) -> Bits:
    """The bits of what the caller gets, without what was computed on the way."""
    task = resolve(request, trial.card, Numerics.EXACT).task
    slots = set(trial.card.programs[task].artifacts.values())
    return {slot: each for slot, each in trial.run(request).items() if slot in slots}


def _returned(trial: Trial, request: Request) -> Bits:
    """The bits of all that was computed on the way."""
    return bits(record(trial.engine, request).taps)
