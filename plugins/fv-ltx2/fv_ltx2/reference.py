"""The reference of the cards' claims: diffusers' pipelines over the same modules, their tensors by fv's names.

Two stages are `LTX2Pipeline` (or `LTX2ImageToVideoPipeline`) at half the size, `LTX2LatentUpsamplePipeline`, and the
first pipeline again at full size with the upsampled latents, all with one generator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import PIL.Image
import torch
from diffusers import LTX2ImageToVideoPipeline, LTX2LatentUpsamplePipeline, LTX2Pipeline
from torch import Tensor, nn
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3TextModel

from fv_core.card import ModelCard
from fv_core.loop import Component
from fv_core.request import ResolvedRequest, Size
from fv_ltx2.packing import pack_audio
from fv_ltx2.scales import scales_of
from fv_ltx2.taps import Steps, Taps


def record(
    components: Mapping[str, Component],
    card: ModelCard,
    request: ResolvedRequest,
    inputs: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Runs the pipelines on one request and returns their taps in order."""
    run = _Run(components, card, request, inputs.get("request.image"))
    if "refine" in card.loops:
        run.two_stages()
    else:
        run.stage("base", 1, output_type="pt")
    return run.taps.found


class _Run:
    """The pipelines of one request."""

    def __init__(
        self,
        components: Mapping[str, Component],
        card: ModelCard,
        request: ResolvedRequest,
        image: Tensor | None,
    ) -> None:
        self.taps = Taps()
        self._components = components
        self._card = card
        self._request = request
        self._image = {} if image is None else {"image": PIL.Image.fromarray(image.cpu().numpy())}
        self._generator = torch.Generator("cpu").manual_seed(request.seed)

    def two_stages(self) -> None:
        latent, audio = self.stage("base", 2, output_type="latent")
        self.taps.node("denormalise", latent=latent[0], audio_latent=pack_audio(audio[0]))
        upsample: Any = LTX2LatentUpsamplePipeline(
            vae=self._components["vae"].module, latent_upsampler=self._components["upsampler"].module
        )
        (latent,) = upsample(latents=latent, output_type="latent", return_dict=False)
        self.taps.node("upsample", latent=latent[0])
        amount = self._sigmas("refine")[0]
        self.stage("refine", 1, output_type="pt", latents=latent, audio_latents=audio, noise_scale=amount)

    def stage(self, name: str, divisor: int, **more: Any) -> tuple[Tensor, Tensor]:
        """One call of the pipeline, tapped as the loop node `name`."""
        request, sigmas = self._request, self._sigmas(name)
        size = Size(request.size.width // divisor, request.size.height // divisor)
        grid = self._card.geometry(size, request.frames).latent[1:]
        steps = Steps(self.taps, name, grid, self._generator, len(sigmas) or request.steps)
        pipeline = self._pipeline(steps, fixed=bool(sigmas))
        with self._watching(pipeline, steps):
            video, audio = pipeline(
                prompt=request.prompt,
                negative_prompt=request.negative_prompt,
                height=size.height,
                width=size.width,
                num_frames=request.frames,
                frame_rate=request.fps,
                num_inference_steps=len(sigmas) or request.steps,
                sigmas=list(sigmas) or None,
                generator=self._generator,
                max_sequence_length=int(self._card.components["text"].params["max_length"]),
                callback_on_step_end=steps.done,
                return_dict=False,
                **self._guidance(),
                **self._image,
                **more,
            )
        if more["output_type"] == "pt":
            self._finished(video[0].permute(0, 2, 3, 1).float().cpu(), audio[0].float().cpu())
        return video, audio

    def _pipeline(self, steps: Steps, *, fixed: bool) -> Any:
        text: Any = self._components["text"]
        kind: Any = LTX2ImageToVideoPipeline if self._image else LTX2Pipeline
        names = ("connectors", "transformer", "vae", "audio_vae", "vocoder")
        pipeline = kind(
            scheduler=steps.scheduler(fixed=fixed),
            text_encoder=_whole_gemma(text.module),
            tokenizer=text.tokenizer,
            **{name: self._components[name].module for name in names},
        )
        pipeline.set_progress_bar_config(disable=True)
        self._watch(pipeline)
        return pipeline

    def _sigmas(self, loop: str) -> tuple[float, ...]:
        own: Any = self._card.loops[loop].params.get("sigmas", ())
        return tuple(own) or self._card.recipe.sigmas

    def _guidance(self) -> dict[str, Any]:
        video, audio = scales_of(self._request)
        skip: Any = self._card.loops["base"].params.get("skip", -1)
        return {
            "guidance_scale": video.cfg,
            "stg_scale": video.stg,
            "modality_scale": video.modality,
            "guidance_rescale": video.rescale,
            "audio_guidance_scale": audio.cfg,
            "audio_stg_scale": audio.stg,
            "audio_modality_scale": audio.modality,
            "audio_guidance_rescale": audio.rescale,
            "spatio_temporal_guidance_blocks": None if skip < 0 else [skip],
        }

    def _watch(self, pipeline: Any) -> None:
        """Taps the methods of one pipeline: what it encodes, and how it takes latents in."""
        encode, nodes = pipeline._get_gemma_prompt_embeds, iter(("encode", "encode_negative"))

        def encoded(**more: Any) -> tuple[Tensor, Tensor]:
            hidden, mask = encode(**more)
            self.taps.node(next(nodes), hidden=hidden[0], mask=mask[0])
            return hidden, mask

        begins = "denormalise/0/latent" not in self.taps.found
        pipeline._get_gemma_prompt_embeds = encoded
        pipeline._normalize_latents = self.taps.watched(
            pipeline._normalize_latents, "encode_image" if begins else "normalise", "latent"
        )
        pipeline._normalize_audio_latents = self.taps.watched(
            pipeline._normalize_audio_latents, "normalise", "audio_latent"
        )

    @contextmanager
    def _watching(self, pipeline: Any, steps: Steps) -> Iterator[None]:
        hooks = (
            pipeline.connectors.register_forward_hook(self._connected),
            pipeline.transformer.register_forward_hook(steps.velocities, with_kwargs=True),
            pipeline.audio_vae.decoder.register_forward_hook(self._mel),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _connected(self, module: nn.Module, args: object, output: tuple[Tensor, Tensor, Tensor]) -> None:
        video, audio, mask = output
        self.taps.node("connect", video=video, audio=audio, mask=mask)

    def _mel(self, module: nn.Module, args: object, output: Tensor) -> None:
        if self._request.params["audio"]:
            self.taps.node("decode_audio", mel=output[0])

    def _finished(self, video: Tensor, audio: Tensor) -> None:
        self.taps.node("decode", frames=video)
        self.taps.keep("video", video)
        if self._request.params["audio"]:
            self.taps.node("vocode", audio=audio)
            self.taps.keep("audio", audio)


def _whole_gemma(language: Gemma3TextModel) -> Gemma3ForConditionalGeneration:
    """The class that the pipeline loads, around the language model; the rest of it stays without weights."""
    with torch.device("meta"):
        whole = Gemma3ForConditionalGeneration(Gemma3Config(text_config=language.config.to_dict()))
    whole.model.language_model = language
    whole.lm_head.weight = language.embed_tokens.weight
    return whole.eval()
