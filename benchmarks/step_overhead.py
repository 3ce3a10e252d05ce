"""What the engine adds to a denoising step, and how it compares with the reference pipeline end to end.

Bare loop: the same modules called directly, with diffusers' own scheduler. WanPipeline: diffusers on a folder that
both sides load. One thread, batch 1, a step of 20 ms or more; the same latents come out of all three.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from report import Contender, Goal, alternate, arguments, ratio, report, settled
from transformers import AutoTokenizer, UMT5Config, UMT5EncoderModel

import fv_wan21
from fv_core import Engine, ModelCard, OutputSpec, Request, derive
from fv_wan21.card import MICRO

STEPS = 6
FRAMES = 9
SIZE = (128, 128)
PROMPT = "a red circle moving right"
DENOISER = {
    **MICRO.components["transformer"].config,
    "num_attention_heads": 4,
    "attention_head_dim": 32,
    "ffn_dim": 512,
    "num_layers": 4,
}
PARAMETERS = 1_247_424  # of that denoiser


def card() -> ModelCard:
    """wan21/micro with a denoiser large enough for a step of 20 ms on one core."""
    components = dict(MICRO.components)
    components["transformer"] = replace(components["transformer"], config=DENOISER, parameters=PARAMETERS)
    return derive(MICRO, components=components)


def save_folder(folder: Path) -> None:
    """A diffusers folder with random weights of that card."""
    torch.manual_seed(0)
    assets = Path(fv_wan21.__file__).parent / "assets"
    WanPipeline(
        tokenizer=AutoTokenizer.from_pretrained(assets / "tokenizer"),
        text_encoder=UMT5EncoderModel(UMT5Config(**MICRO.components["text"].config)),
        vae=AutoencoderKLWan(**MICRO.components["vae"].config),
        transformer=WanTransformer3DModel(**DENOISER),
        scheduler=UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=3.0
        ),
    ).save_pretrained(folder)


def align(pipeline: Any) -> None:
    """Copies the reference's weights into aligned memory, as fv's are: mapped ones round differently."""
    for module in (pipeline.transformer, pipeline.text_encoder, pipeline.vae):
        for parameter in module.parameters():
            parameter.data = parameter.data.clone()


class Bare:
    """The denoising loop written out: two forwards, guidance, the scheduler's step."""

    @torch.no_grad()
    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline
        self.cond, self.uncond = pipeline.encode_prompt(PROMPT, "", max_sequence_length=512)
        self.latent: torch.Tensor | None = None

    @torch.no_grad()
    def __call__(self) -> None:
        transformer, scheduler = self.pipeline.transformer, self.pipeline.scheduler
        scheduler.set_timesteps(STEPS)
        scheduler.set_begin_index(0)
        shape = (1, 16, (FRAMES - 1) // 4 + 1, SIZE[1] // 8, SIZE[0] // 8)
        latent = torch.randn(shape, generator=torch.Generator("cpu").manual_seed(7))
        for timestep in scheduler.timesteps:
            when = timestep.expand(1)
            cond = transformer(latent, when, self.cond, return_dict=False)[0]
            uncond = transformer(latent, when, self.uncond, return_dict=False)[0]
            latent = scheduler.step(uncond + 5.0 * (cond - uncond), timestep, latent, return_dict=False)[0]
        self.latent = latent


class Denoised:
    """The same denoising loop as the engine drives it: the job's steps of node `denoise`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __call__(self) -> None:
        self.job.step()
        while not self.job.done and self.job.run.current.id == "denoise":
            self.job.step()

    def prepare(self) -> None:
        self.job = self.engine.start(request())
        while self.job.run.current.id != "denoise":
            self.job.step()

    def finish(self) -> torch.Tensor:
        latent = self.job.run.slots["latent"]
        self.job.close()
        assert isinstance(latent, torch.Tensor)
        return latent


def request() -> Request:
    return Request(
        prompt=PROMPT,
        seed=7,
        size=SIZE,
        frames=FRAMES,
        steps=STEPS,
        guidance=5.0,
        output=OutputSpec(keep=("latent",)),
    )


def measure_loop(engine: Engine, bare: Bare, rounds: int) -> tuple[list[float], list[float]]:
    denoised = Denoised(engine)
    ours, theirs = [], []
    for index in range(rounds):
        denoised.prepare()
        pair: dict[str, Contender] = {"fv": denoised, "bare": bare}
        order = pair if index % 2 == 0 else dict(reversed(pair.items()))
        seconds = alternate(order, 1)
        ours.append(seconds["fv"][0] / STEPS)
        theirs.append(seconds["bare"][0] / STEPS)
        assert bare.latent is not None and torch.equal(denoised.finish(), bare.latent[0]), (
            "both compute the same"
        )
    return ours, theirs


def main() -> None:
    args = settled(arguments(__doc__, rounds=15))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        save_folder(folder)
        pipeline = WanPipeline.from_pretrained(folder)
        align(pipeline)
        pipeline.set_progress_bar_config(disable=True)
        with Engine([card()], device="cpu", weights=folder, numerics="reference") as engine:
            bare = Bare(pipeline)

            def fv() -> None:
                engine.run(request())

            def reference() -> None:
                generator = torch.Generator("cpu").manual_seed(7)
                pipeline(
                    PROMPT,
                    height=SIZE[1],
                    width=SIZE[0],
                    num_frames=FRAMES,
                    num_inference_steps=STEPS,
                    guidance_scale=5.0,
                    generator=generator,
                )

            alternate(
                {"fv": fv, "WanPipeline": reference, "bare": bare}, 1 if args.smoke else 2
            )  # kernels warm
            ours, theirs = measure_loop(engine, bare, args.rounds)
            whole = alternate({"fv": fv, "WanPipeline": reference}, args.rounds)
    figures = {
        "bare_step_ms": 1000 * statistics.median(theirs),
        "engine_over_bare": ratio(ours, theirs),
        "pipeline_over_fv": ratio(whole["WanPipeline"], whole["fv"]),
    }
    rows = [
        ("what", "fv", "alternative", "ratio"),
        ("one denoising step, ms (bare loop)", f"{1000 * statistics.median(ours):.2f}",
         f"{figures['bare_step_ms']:.2f}", f"{figures['engine_over_bare']:.4f}"),
        ("one clip end to end, s (WanPipeline)", f"{statistics.median(whole['fv']):.3f}",
         f"{statistics.median(whole['WanPipeline']):.3f}", f"{figures['pipeline_over_fv']:.4f}"),
    ]  # fmt: skip
    goals = [
        Goal(figure="bare_step_ms", at_most=False, limit=20.0),
        Goal(figure="engine_over_bare", at_most=True, limit=1.01),
        Goal(figure="pipeline_over_fv", at_most=False, limit=1.0),
    ]
    report("step_overhead", rows, figures, goals, args)


if __name__ == "__main__":
    main()
