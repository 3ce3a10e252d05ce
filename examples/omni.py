"""One model, one copy of its weights: an answer, then a video with sound, then the same thought through first."""

from __future__ import annotations

import fv_core as fv

MODEL = "cosmos3/tiny"


def main() -> None:
    with fv.Engine([MODEL]) as engine:
        question = fv.Request(model=MODEL, task=fv.TaskType.QA, prompt="what falls on a tin roof?", seed=1)
        print(engine.run(question).text)
        scene = fv.Request(model=MODEL, prompt="rain on a tin roof", frames=9, seed=1, params={"audio": True})
        clip = engine.run(scene)
        assert clip.audio is not None
        print(clip.save("rain.mp4", force=True), f"{clip.audio.seconds:.2f} s of sound")
        thought = fv.Request(model=MODEL, prompt="rain", frames=9, seed=1, params={"think": True})
        print(engine.run(thought).save("thought.mp4", force=True))


if __name__ == "__main__":
    main()
