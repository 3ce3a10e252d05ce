"""Wan 2.1 1.3B at 832x480, 81 frames in bf16 with random weights on a GPU: seconds per step, decode, peak bytes.

Random weights cost what trained ones cost. fv and WanPipeline run the same modules in alternation. Without a GPU it
refuses: it reports no figure and exits with 2.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanTransformer3DModel
from report import Goal, arguments, ratio, report, settled

from fv_core import Engine, ModelCard, OutputSpec, Request, derive
from fv_core.runtime.job import Job
from fv_wan21.card import T2V_1_3B

PROMPT = "a red circle moving right"


def seeded_card() -> ModelCard:
    """The 1.3B card without a checkpoint: its weights are made from a seed, so nothing is downloaded."""
    return derive(T2V_1_3B, checkpoint=None)


def fv_seconds(job: Job, node: str) -> tuple[float, int]:
    """Device seconds and steps of one node of a job that stands at its start."""
    started, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    steps = 0
    started.record()
    while not job.done and job.run.current.id == node:
        job.step()
        steps += 1
    ended.record()
    torch.cuda.synchronize()
    if job.error is not None:
        raise job.error
    return started.elapsed_time(ended) / 1000, steps


@torch.no_grad()
def reference_seconds(transformer: Any, embeds: tuple[torch.Tensor, torch.Tensor], steps: int) -> float:
    """Device seconds per step of the reference's loop on the same transformer."""
    scheduler = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=3.0
    )
    scheduler.set_timesteps(steps, device="cuda")
    scheduler.set_begin_index(0)
    latent = torch.randn(1, 16, 21, 60, 104, device="cuda")
    started, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    started.record()
    for timestep in scheduler.timesteps:
        rows = latent.to(torch.bfloat16), timestep.expand(1)
        cond, uncond = (transformer(*rows, text[None], return_dict=False)[0] for text in embeds)
        latent = scheduler.step(uncond + 5.0 * (cond - uncond), timestep, latent, return_dict=False)[0]
    ended.record()
    torch.cuda.synchronize()
    seconds: float = started.elapsed_time(ended) / 1000
    return seconds / steps


@torch.no_grad()
def reference_decode(vae: AutoencoderKLWan, latent: torch.Tensor) -> tuple[float, int]:
    """Device seconds and peak bytes beside the weights of the reference's one-shot decode."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    started, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    started.record()
    vae.decode(latent[None].float(), return_dict=False)
    ended.record()
    torch.cuda.synchronize()
    return started.elapsed_time(ended) / 1000, torch.cuda.max_memory_allocated() - before


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--steps", type=int, default=4)
    args = settled(parser)
    if not torch.cuda.is_available():
        parser.exit(2, "device: torch finds no CUDA device here, so nothing was measured\n")
    measure(args)


def measure(args: argparse.Namespace) -> None:
    ours, theirs, decode, reference = [], [], [], []
    request = Request(prompt=PROMPT, seed=7, steps=args.steps, output=OutputSpec(keep=("latent",)))
    with Engine([seeded_card()], device="cuda", dtype="bfloat16", offload="none") as engine:
        predicted = engine.plan(request).peak_bytes
        instance = engine.instance("wan21/t2v-1.3b")
        peak = decode_peak = reference_peak = 0
        for _ in range(args.rounds + 1):  # the first one warms kernels up
            torch.cuda.reset_peak_memory_stats()
            job = engine.start(request)
            while job.run.current.id != "denoise":
                job.step()
            embeds = tuple(job.run.scope.get(job.run.slots[name]) for name in ("cond", "uncond"))  # type: ignore[arg-type]
            seconds, count = fv_seconds(job, "denoise")
            ours.append(seconds / count)
            latent = job.run.slots["latent"]
            assert isinstance(latent, torch.Tensor)
            peak = max(peak, torch.cuda.max_memory_allocated())
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            decode.append(fv_seconds(job, "decode")[0])
            decode_peak = torch.cuda.max_memory_allocated() - before
            peak = max(peak, torch.cuda.max_memory_allocated())
            job.close()
            transformer: WanTransformer3DModel = instance.component("transformer").module
            theirs.append(reference_seconds(transformer, embeds, args.steps))  # type: ignore[arg-type]
            seconds, reference_peak = reference_decode(instance.component("vae").module, latent)
            reference.append(seconds)
    figures = {
        "step_s": statistics.median(ours[1:]),
        "step_over_reference": ratio(ours[1:], theirs[1:]),
        "decode_s": statistics.median(decode[1:]),
        "decode_over_reference": ratio(decode[1:], reference[1:]),
        "peak_gib": peak / 2**30,
        "predicted_over_peak": predicted / peak,
        "decode_peak_over_reference": decode_peak / reference_peak,
    }
    rows = [
        ("what", "fv", "reference"),
        ("seconds per step", f"{figures['step_s']:.3f}", f"{statistics.median(theirs[1:]):.3f}"),
        ("decode, seconds", f"{figures['decode_s']:.2f}", f"{statistics.median(reference[1:]):.2f}"),
        ("decode, GiB beside weights", f"{decode_peak / 2**30:.2f}", f"{reference_peak / 2**30:.2f}"),
        ("peak, GiB (predicted)", f"{figures['peak_gib']:.2f} ({predicted / 2**30:.2f})", ""),
    ]
    goals = [
        Goal(figure="step_over_reference", at_most=True, limit=1.01),
        Goal(figure="decode_over_reference", at_most=True, limit=1.05),
    ]
    report(f"device {torch.cuda.get_device_name()}", rows, figures, goals, args)


if __name__ == "__main__":
    main()
