"""How often the clips of wan21/tiny show what their prompts say, read by the rule-based scorer of the data set.

Prompts of seen and of held-out combinations of words, default sampling. Beside the rates: what the autoencoder alone
leaves of true clips (the ceiling), the same clips judged by other prompts (chance), and 95 % intervals (Wilson).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from report import Goal, arguments, report, settled

from fv_core import Engine
from fv_core.plugins import find_card
from fv_core.request import Request
from fv_core.training.data.scenes import (
    WORDINGS,
    Frames,
    Labels,
    Split,
    combinations,
    draw,
    render,
)
from fv_core.training.rewards.shapes import read
from fv_wan21.tiny import WORDS

ATTRIBUTES = ("shape", "colour", "direction", "background", "all")
LIMITS = {Split.SEEN: (0.95, 0.90), Split.HELD_OUT: (0.90, 0.75)}
"""Goals: of each attribute, and of all at once."""
_TOGETHER = 32


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Clips with the labels that they were asked for."""

    labels: list[Labels]
    clips: list[Frames]

    def rates(self, shift: int = 0) -> dict[str, float]:
        """The share of clips read as their labels, or as those of the clip `shift` places on."""
        asked = self.labels[shift:] + self.labels[:shift]
        hits = [read(clip).hits(labels) for clip, labels in zip(self.clips, asked, strict=True)]
        return {name: float(np.mean([hit[name] for hit in hits])) for name in ATTRIBUTES}


def prompts(split: Split, count: int) -> list[tuple[Labels, str]]:
    """Different prompts: combinations, wordings and names of words at random."""
    rng = np.random.default_rng(0)
    every = [(labels, wording) for wording in range(len(WORDINGS)) for labels in combinations(split, WORDS)]
    found: dict[str, Labels] = {}
    while len(found) < count:
        for place in rng.permutation(len(every)):
            labels, wording = every[place]
            found.setdefault(labels.caption(wording, rng), labels)
    return [(labels, caption) for caption, labels in islice(found.items(), count)]


def generated(engine: Engine, model: str, asked: Sequence[tuple[Labels, str]], seeds: int) -> Judged:
    """The clips of every prompt under every seed."""
    requests = [
        Request(prompt=caption, model=model, seed=1000 * seed + place)
        for seed in range(seeds)
        for place, (_, caption) in enumerate(asked)
    ]
    clips: list[Frames] = []
    for begin in range(0, len(requests), _TOGETHER):
        for result in engine.run_many(requests[begin : begin + _TOGETHER], numerics="fast"):
            if result.clip is None:
                raise SystemExit(f"{result.request.prompt}: {result.error}")
            clips.append(result.clip.frames)
    return Judged(labels=[labels for labels, _ in asked] * seeds, clips=clips)


def decoded(vae: Any, count: int) -> tuple[Judged, float]:
    """True clips of both splits through the autoencoder, and their PSNR in dB."""
    every = [*combinations(Split.SEEN, WORDS), *combinations(Split.HELD_OUT, WORDS)]
    rng = np.random.default_rng(1)
    labels = [every[place] for place in rng.permutation(len(every))[:count]]
    true = np.stack([render(draw(one, rng), 64, 9) for one in labels])
    found = []
    with torch.no_grad():
        for begin in range(0, len(true), 16):
            pixels = torch.from_numpy(true[begin : begin + 16]).permute(0, 4, 1, 2, 3).float() / 127.5 - 1
            found.append(vae.decode(vae.encode(pixels).latent_dist.mode()).sample)
    shown = (
        ((torch.cat(found) + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 4, 1).numpy()
    )
    error = float(np.mean((shown.astype(np.float64) - true) ** 2))
    return Judged(labels=labels, clips=list(shown)), 10 * math.log10(255**2 / error)


def interval(rate: float, count: int) -> str:
    """Wilson's 95 % interval of a rate among `count` clips."""
    z = 1.96
    middle = (rate + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    return f"{rate:.3f} [{max(middle - half, 0):.3f}, {min(middle + half, 1):.3f}]"


def sheet(judged: Judged, path: Path, count: int = 24) -> None:
    """Five pictures of each of the first clips, three clips a row, enlarged four times."""
    rows = [np.concatenate(clip[:: max(1, len(clip) // 4)][:5], axis=1) for clip in judged.clips[:count]]
    lines = [np.concatenate(rows[at : at + 3], axis=1) for at in range(0, len(rows) // 3 * 3, 3)]
    picture = Image.fromarray(np.concatenate(lines))
    picture.resize((picture.width * 2, picture.height * 2), Image.Resampling.NEAREST).save(path)


def lines_of(told: Mapping[str, tuple[dict[str, float], int]]) -> Iterator[tuple[str, ...]]:
    yield ("clips", *ATTRIBUTES)
    for name, (rates, count) in told.items():
        yield (name, *(interval(rates[attribute], count) for attribute in ATTRIBUTES))


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--model", default="wan21/tiny", help="id of a card, or the folder of a run")
    parser.add_argument("--prompts", type=int, default=200, help="of each split")
    parser.add_argument("--sheets", type=Path, help="a folder for contact sheets")
    args = settled(parser)
    torch.set_num_threads(1)
    count = 3 if args.smoke else args.prompts
    told: dict[str, tuple[dict[str, float], int]] = {}
    figures: dict[str, float] = {}
    card = find_card(args.model)
    with Engine([card], device="cpu", dtype="float32") as engine:
        for split in Split:
            asked = prompts(split, count)
            judged = generated(engine, card.model_id, asked, args.rounds)
            told[str(split)] = (judged.rates(), len(judged.clips))
            told[f"{split}, other prompts"] = (judged.rates(shift=1), len(judged.clips))
            figures |= {f"{split}_{name}": rate for name, rate in told[str(split)][0].items()}
            if args.sheets:
                args.sheets.mkdir(parents=True, exist_ok=True)
                sheet(judged, args.sheets / f"{split}.png")
        vae: Any = engine.instance(card.model_id).component("vae")
        ceiling, figures["codec_db"] = decoded(vae.module, count)
    told["autoencoder alone"] = (ceiling.rates(), len(ceiling.clips))
    figures["codec_all"] = told["autoencoder alone"][0]["all"]
    goals = [
        Goal(figure=f"{split}_{name}", at_most=False, limit=LIMITS[split][name == "all"])
        for split in Split
        for name in ATTRIBUTES
    ]
    goals += [
        Goal(figure="codec_db", at_most=False, limit=29.0),
        Goal(figure="codec_all", at_most=False, limit=0.95),
    ]
    report("tiny_quality", list(lines_of(told)), figures, goals, args)


if __name__ == "__main__":
    main()
