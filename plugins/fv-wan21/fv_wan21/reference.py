"""The reference of the cards' claims: `diffusers.WanPipeline` over the same modules, its tensors by fv's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import UniPCMultistepScheduler, WanPipeline
from diffusers.models.autoencoders.autoencoder_kl_wan import unpatchify
from torch import Tensor, nn

from fv_core.card import ModelCard
from fv_core.loop import Component
from fv_core.request import ResolvedRequest

_BRANCHES = ("cond", "uncond")
"""The order in which the pipeline computes them."""


def record(
    components: Mapping[str, Component],
    card: ModelCard,
    request: ResolvedRequest,
    inputs: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Runs the pipeline on one request and returns its taps in order.

    Embeddings [L, D], velocities and latents [C, F, H, W], frames and the video [F, H, W, 3] in [0, 1].
    """
    pipeline = _pipeline(components, request)
    taps = _Taps(pipeline)
    with taps.watching():
        video = pipeline(
            prompt=request.prompt,
            negative_prompt=request.negative_prompt,
            height=request.size.height,
            width=request.size.width,
            num_frames=request.frames,
            num_inference_steps=request.steps,
            guidance_scale=request.guidance,
            max_sequence_length=int(card.components["text"].params["max_length"]),
            generator=torch.Generator("cpu").manual_seed(request.seed),
            output_type="pt",
            callback_on_step_end=taps.step_done,
        ).frames[0]
    taps.finished(video)
    return taps.found


def _pipeline(components: Mapping[str, Component], request: ResolvedRequest) -> Any:
    text: Any = components["text"]
    pipeline = WanPipeline(
        tokenizer=text.tokenizer,
        text_encoder=text.module,
        transformer=components["transformer"].module,
        vae=components["vae"].module,
        scheduler=UniPCMultistepScheduler(
            prediction_type="flow_prediction",
            use_flow_sigmas=True,
            num_train_timesteps=1000,
            flow_shift=float(request.params["shift"]),
        ),
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


class _Taps:
    """What a pipeline computes while it is watched, in the order it comes."""

    def __init__(self, pipeline: Any) -> None:
        self.found: dict[str, Tensor] = {}
        self._pipeline = pipeline
        self._step = 0
        self._branches = iter(_BRANCHES)
        self._chunk = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        vae, encode = self._pipeline.vae, self._pipeline.encode_prompt
        hooks = (
            self._pipeline.transformer.register_forward_hook(self._velocity),
            vae.post_quant_conv.register_forward_hook(self._prepared),
            vae.decoder.register_forward_hook(self._frames),
        )
        self._pipeline.encode_prompt = lambda *args, **more: self._embeddings(*encode(*args, **more))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def step_done(
        self, pipeline: Any, step: int, timestep: Any, state: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        self._keep(f"denoise/{step}/latent", state["latents"][0])
        self._step, self._branches = step + 1, iter(_BRANCHES)
        return state

    def finished(self, video: Tensor) -> None:
        self._keep(f"decode/{self._chunk}/video", _channels_last(video))
        self._keep("video", _channels_last(video))

    def _embeddings(self, cond: Tensor, uncond: Tensor | None) -> tuple[Tensor, Tensor | None]:
        for node, embeds in (("encode", cond), ("encode_negative", uncond)):
            if embeds is not None:
                self._keep(f"{node}/0/cond/embeds", embeds[0])
                self._keep(f"{node}/0/embeds", embeds[0])
        return cond, uncond

    def _velocity(self, module: nn.Module, args: object, output: tuple[Tensor]) -> None:
        self._keep(f"denoise/{self._step}/{next(self._branches)}/velocity", output[0][0])

    def _prepared(self, module: nn.Module, args: object, output: Tensor) -> None:
        self._keep("decode/0/cond/latent", output[0])

    def _frames(self, module: nn.Module, args: object, output: Tensor) -> None:
        self._chunk += 1
        patch = self._pipeline.vae.config.patch_size
        pixels = output if patch is None else unpatchify(output, patch_size=patch)
        clamped = torch.clamp(pixels, min=-1.0, max=1.0)
        (frames,) = self._pipeline.video_processor.postprocess_video(clamped, output_type="pt")
        self._keep(f"decode/{self._chunk}/cond/frames", _channels_last(frames))

    def _keep(self, tap: str, tensor: Tensor) -> None:
        self.found[tap] = tensor.clone()


def _channels_last(frames: Tensor) -> Tensor:
    return frames.permute(0, 2, 3, 1).float().cpu()
