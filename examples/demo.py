"""Real files from the models that need no download, a contact sheet of them, where they are and what they cost."""

from __future__ import annotations

import time
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
    "a green triangle moving up on a gray background",
)


def clips(card: ModelCard) -> list[tuple[str, fv.Clip, float]]:
    """One clip per prompt with its wall seconds; the first one pays for loading."""
    made = []
    with fv.Engine([card]) as engine:
        for seed, prompt in enumerate(PROMPTS):
            began = time.perf_counter()
            clip = engine.run(fv.Request(prompt=prompt, seed=seed))
            made.append((prompt, clip, time.perf_counter() - began))
    return made


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    rows = []
    for card in all_cards():
        if card.checkpoint is not None:
            continue
        name = card.model_id.replace("/", "-")
        if card.recipe.method is Method.UNTRAINED:
            print(f"{card.model_id} is untrained: the real classes at toy size, so its clips are noise.")
            print("For a real model: .venv/bin/fv weights pull wan21/t2v-1.3b\n")
        for prompt, clip, seconds in clips(card):
            path = clip.save(FOLDER / f"{name}-{clip.used.seed}.mp4", force=True, scale=SCALE)
            used = clip.used
            print(
                f"{path}  {used.size} x {used.frames} frames, {used.steps} steps, seed {used.seed}: {seconds:.2f} s"
            )
            rows.append((f"{card.model_id}: {prompt}", clip))
    sheet = contact_sheet(rows, FOLDER / "contact-sheet.png", columns=6, scale=2, force=True)
    print(f"\nContact sheet: {sheet}")
    print(f"Files are enlarged {SCALE}x. Next: .venv/bin/fv generate 'a red circle moving right'")


if __name__ == "__main__":
    main()
