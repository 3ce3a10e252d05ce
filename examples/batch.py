"""Several requests on one engine, step by step in turn; one that fails leaves the others alone."""

from __future__ import annotations

import fv_core as fv

PROMPTS = ("a red circle moving right", " ", "a blue square moving left")


def main() -> None:
    requests = [fv.Request(prompt=prompt, seed=seed) for seed, prompt in enumerate(PROMPTS)]
    with fv.Engine() as engine:
        for result in engine.run_many(requests):
            if result.clip is not None:
                print(result.clip.save(f"batch-{result.request.seed}.gif", force=True))
            elif result.error is not None:
                print(result.error)


if __name__ == "__main__":
    main()
