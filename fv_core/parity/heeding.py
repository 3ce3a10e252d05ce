"""A gate on what a card heeds: a request that differs in its seed or its prompt comes to something else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import combinations, islice, permutations

from fv_core.parity.bits import Bits
from fv_core.parity.trial import Finding, Trial
from fv_core.request import Numerics, Request, TaskType
from fv_core.runtime.resolve import SEEDS, resolve

_TRIES = 3


def inputs(trial: Trial) -> Finding:
    """Another seed changes what a request yields, and so does another prompt of as many letters and words.

    A task that yields text alone may take the likeliest word each time: its seed is not asked for. A clip of one
    frame made from an image is that image, and is left out.
    """
    wrong, of = [], 0
    for number, (request, alone) in enumerate(zip(trial.requests, trial.alone, strict=True), 1):
        settled = resolve(request, trial.card, Numerics.EXACT)
        if settled.task is TaskType.I2V and settled.frames == 1:
            continue
        told = _yielded(trial, settled.task, alone)
        others = {"prompt": (replace(request, prompt=one) for one in reworded(settled.prompt))}
        if set(trial.card.programs[settled.task].artifacts) != {"text"}:
            others["seed"] = (
                replace(request, seed=(settled.seed + more) % SEEDS) for more in range(1, _TRIES)
            )
        for what, tried in others.items():
            of += 1
            if not _changes(trial, settled.task, told, tried):
                wrong.append(f"request {number} comes to the same with another {what}")
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


def _changes(trial: Trial, task: TaskType, told: Bits, tried: Iterable[Request]) -> bool:
    return any(_yielded(trial, task, trial.run(one)) != told for one in tried)


def _yielded(trial: Trial, task: TaskType, found: Bits) -> Bits:
    """The bits of what the caller gets, without what was computed on the way."""
    slots = set(trial.card.programs[task].artifacts.values())
    return {slot: each for slot, each in found.items() if slot in slots}
