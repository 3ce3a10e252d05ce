"""Real files from the models that need no download, a contact sheet of them, where they are and what they cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import fv_core as fv
from fv_core.card import Method, ModelCard
from fv_core.media import contact_sheet
from fv_core.plugins import all_cards

FOLDER = Path("demo")
SCALE = 4
PROMPTS = (
    "a red circle moving right on a black background",
    "a blue square moving left on a white background",
    "a green triangle moving up on a white background",
)


def clips(card: ModelCard) -> Iterator[tuple[fv.Clip, float]]:
    """One clip of the card's first task per prompt, with its wall seconds; the first one pays for loading."""
    with fv.Engine([card]) as engine:
        for seed, prompt in enumerate(PROMPTS):
            began = time.perf_counter()
            clip = engine.run(fv.Request(prompt=prompt, seed=seed))
            yield clip, time.perf_counter() - began


def saved(card: ModelCard, clip: fv.Clip) -> Path:
    """The clip's file: a picture for a card that makes pictures, else an mp4, with sound where there is some."""
    suffix = ".png" if card.programs[clip.request.task].fixed.get("frames") == 1 else ".mp4"
    name = f"{card.model_id.replace('/', '-')}-{clip.used.seed}{suffix}"
    return clip.save(FOLDER / name, force=True, scale=SCALE)


def told(clip: fv.Clip) -> str:
    used = clip.used
    sound = f" + {clip.audio.seconds:.2f} s of sound" if clip.audio is not None else ""
    return f"{used.size} x {used.frames} frames{sound}, {used.steps} steps, seed {used.seed}"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    rows = []
    tiny = [card for card in all_cards() if card.checkpoint is None]
    tiny.sort(key=lambda card: card.recipe.method is Method.UNTRAINED)  # what can draw comes first
    untrained = [card.model_id for card in tiny if card.recipe.method is Method.UNTRAINED]
    if untrained:
        print(f"Untrained, the real classes at toy size, so what they make is noise: {', '.join(untrained)}.")
        print("For a real model: .venv/bin/fv weights pull wan21/t2v-1.3b\n")
    for card in tiny:
        for clip, seconds in clips(card):
            print(f"{saved(card, clip)}  {told(clip)}: {seconds:.2f} s")
            rows.append((f"{card.model_id}: {clip.request.prompt}", clip))
    sheet = contact_sheet(rows, FOLDER / "contact-sheet.png", columns=6, scale=2, force=True)
    print(f"\nContact sheet: {sheet}")
    print(
        f"Files are enlarged {SCALE}x. Next: .venv/bin/fv generate 'a red circle moving right on a black background'"
    )


if __name__ == "__main__":
    main()
