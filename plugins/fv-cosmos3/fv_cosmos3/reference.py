"""The reference of the cards' claims, over the same modules: diffusers' pipeline, and transformers for its texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from diffusers import Cosmos3OmniPipeline, CosmosActionCondition, UniPCMultistepScheduler
from PIL import Image
from torch import Tensor, nn

from fv_core.card import ModelCard
from fv_core.loop import Component
from fv_core.request import ResolvedRequest, TaskType
from fv_cosmos3.denoise import ACTION_TASKS
from fv_cosmos3.reasoner import greedy, tied_reasoner

_BRANCHES = ("cond", "uncond")
"""The order in which the pipeline computes them."""


def record(
    components: Mapping[str, Component],
    card: ModelCard,
    request: ResolvedRequest,
    inputs: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Runs the reference on one request and returns its taps.

    Raises:
        ValueError: the request samples a text, which the reference draws in another way.
    """
    found: dict[str, Tensor] = {}
    prompt = request.prompt
    thinks = request.params["think"] and request.task not in ACTION_TASKS
    if request.task is TaskType.QA or thinks:
        prompt = _spoken(components, card, request, found) or prompt
    if request.task is not TaskType.QA:
        _Run(components, card, request, inputs, found).generate(prompt)
    return found


def _spoken(
    components: Mapping[str, Component], card: ModelCard, request: ResolvedRequest, found: dict[str, Tensor]
) -> str:
    if request.params["temperature"] != 0:
        raise ValueError("only texts of temperature 0 can be compared")
    transformer: Any = components["transformer"]
    conversation = [{"role": "user", "content": request.prompt}]
    asked = transformer.tokenizer.apply_chat_template(
        conversation, add_generation_prompt=True, return_dict=True
    )
    tokens = list(asked.input_ids)
    found |= dict.fromkeys(("ask/0/cond/tokens", "ask/0/tokens"), torch.tensor(tokens))
    stop: Any = card.loops["reason"].params["stop"]
    limit = int(request.params["max_tokens"])
    written, logits = greedy(tied_reasoner(transformer.module), tokens, limit, tuple(stop))
    for step, (token, row) in enumerate(zip(written, logits, strict=True)):
        at = f"reason/{step}/cond"
        found[f"{at}/token"] = torch.tensor(token)
        found[f"{at}/logprob"] = torch.log_softmax(row.float(), dim=-1)[token]
        found[f"{at}/position"] = torch.tensor(len(tokens) + step)
    found[f"reason/{len(written) - 1}/tokens"] = torch.tensor(written)
    text = str(transformer.tokenizer.decode(written, skip_special_tokens=True)).strip()
    found["text"] = torch.tensor(list(text.encode()), dtype=torch.uint8)
    return text


class _Run:
    """One run of the pipeline, and what it computes while it is watched."""

    def __init__(
        self,
        components: Mapping[str, Component],
        card: ModelCard,
        request: ResolvedRequest,
        inputs: Mapping[str, Tensor],
        found: dict[str, Tensor],
    ) -> None:
        transformer: Any = components["transformer"]
        self._request = request
        self._inputs = inputs
        self._found = found
        self._stepped = _Stepped()
        self._pipeline = _pipeline(transformer, components, request, self._stepped)
        self._loud = bool(request.params["audio"])
        self._node = "denoise_with_sound" if self._loud else "denoise"
        self._cell = card.latent.spatial
        self._step, self._branches = 0, iter(_BRANCHES)
        self._encoded, self._decoded, self._clean = 0, 0, 0

    def generate(self, prompt: str) -> None:
        """Runs the pipeline under the request and keeps its taps."""
        request = self._request
        with self._watched():
            result = self._pipeline(
                prompt=prompt,
                negative_prompt=request.negative_prompt,
                fps=request.fps,
                num_inference_steps=request.steps,
                guidance_scale=request.guidance,
                generator=torch.Generator("cpu").manual_seed(request.seed),
                output_type="latent" if request.task is TaskType.INVERSE_DYNAMICS else "pt",
                callback_on_step_end=self._step_done,
                **self._given(),
            )
        self._finished(result)

    def _given(self) -> dict[str, Any]:
        request, inputs = self._request, self._inputs
        if request.task in ACTION_TASKS:
            action = CosmosActionCondition(
                mode=request.task.replace("-", "_"),
                chunk_size=request.frames - 1,
                domain_name=str(request.params["domain"]),
                resolution_tier=int(request.params["tier"]),
                raw_actions=inputs.get("request.action"),
                image=_image(inputs.get("request.image")),
                video=_frames(inputs.get("request.video")),
                view_point=str(request.params["view"]),
            )
            return {"action": action, "use_system_prompt": False}
        size: dict[str, Any] = {
            "height": request.size.height,
            "width": request.size.width,
            "num_frames": request.frames,
            "enable_sound": self._loud,
        }
        if request.task is TaskType.V2V:
            size["condition_frame_indexes_vision"] = range(int(request.params["condition_frames"]))
            size["condition_video_keep"] = request.params["keep"]
        return {
            **size,
            "image": _image(inputs.get("request.image")),
            "video": _frames(inputs.get("request.video")),
        }

    @contextmanager
    def _watched(self) -> Iterator[None]:
        pipeline = self._pipeline
        tokenize, encode, sound = pipeline.tokenize_prompt, pipeline._encode_video, pipeline.decode_sound
        prepare = pipeline.prepare_latents
        pipeline.tokenize_prompt = lambda *args, **more: self._tokens(*tokenize(*args, **more))
        pipeline.prepare_latents = lambda **given: self._prepared_latents(prepare(**given))
        pipeline._encode_video = lambda pixels: self._latent(pixels, encode(pixels))
        pipeline.decode_sound = lambda latent: self._audio(sound(latent))
        hooks = (
            pipeline.transformer.register_forward_hook(self._velocities),
            pipeline.vae.encoder.register_forward_hook(self._features),
            pipeline.vae.post_quant_conv.register_forward_hook(self._prepared),
            pipeline.vae.decoder.register_forward_hook(self._frames_done),
        )
        with ExitStack() as stack:
            for hook in hooks:
                stack.callback(hook.remove)
            yield

    def _tokens(self, cond: list[int], uncond: list[int]) -> tuple[list[int], list[int]]:
        nodes = ("prompt", "negative_prompt") if self._request.guidance > 1 else ("prompt",)
        for node, ids in zip(nodes, (cond, uncond), strict=False):
            self._keep(f"{node}/0/cond/tokens", torch.tensor(ids))
            self._keep(f"{node}/0/tokens", torch.tensor(ids))
        return cond, uncond

    def _features(self, module: nn.Module, args: object, output: Tensor) -> None:
        """Encoded chunks; those past the clean ones condition nothing and are dropped in `_latent`."""
        self._encoded += 1
        self._found[f"encode/{self._encoded}/cond/features"] = output[0].clone()

    def _latent(self, pixels: Tensor, latent: Tensor) -> Tensor:
        clean = self._clean_frames(latent.shape[2])
        for chunk in range(clean + 1, self._encoded + 1):
            del self._found[f"encode/{chunk}/cond/features"]
        if clean:
            self._keep("encode/0/cond/pixels", pixels[0, :, : 1 + 4 * (clean - 1)])
            size = self._request.size
            kept = latent[0, :, :clean, : size.height // self._cell, : size.width // self._cell]
            self._keep(f"encode/{clean + 1}/cond/latent", kept)
            self._keep(f"encode/{clean + 1}/latent", kept)
        return latent

    def _prepared_latents(self, made: tuple[Any, ...]) -> tuple[Any, ...]:
        if self._request.task is TaskType.FORWARD_DYNAMICS:
            for tap in ("actions/0/cond/action", "actions/0/action"):
                self._keep(tap, made[2])
        return made

    def _clean_frames(self, frames: int) -> int:
        match self._request.task:
            case TaskType.T2V | TaskType.T2I:
                return 0
            case TaskType.V2V:
                return int(self._request.params["condition_frames"])
            case TaskType.INVERSE_DYNAMICS:
                return frames
        return 1

    def _velocities(self, module: nn.Module, args: object, output: tuple[Any, ...]) -> None:
        branch = next(self._branches)
        video, sound, action = output
        at = f"{self._node}/{self._step}/{branch}"
        self._keep(f"{at}/video", video[0][0])
        if sound is not None:
            self._keep(f"{at}/sound", sound[0])
        if action is not None:
            self._keep(f"{at}/action", action[0])

    def _step_done(
        self, pipeline: Any, step: int, timestep: Any, state: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        names = ("latent", "sound" if self._loud else "action")
        for name, latent in zip(names, self._stepped.take(), strict=False):
            kept = (
                latent[0, 0] if name == "latent" else latent[0]
            )  # the video has a batch axis beside the solver's
            self._keep(f"{self._node}/{step}/{name}", kept)
        self._step, self._branches = step + 1, iter(_BRANCHES)
        return state

    def _prepared(self, module: nn.Module, args: object, output: Tensor) -> None:
        self._keep("decode/0/cond/latent", output[0])

    def _frames_done(self, module: nn.Module, args: object, output: Tensor) -> None:
        self._decoded += 1
        if (patch := self._pipeline.vae.config.patch_size) is not None:
            from diffusers.models.autoencoders.autoencoder_kl_wan import unpatchify

            output = unpatchify(output, patch_size=patch)
        clamped = torch.clamp(output, min=-1.0, max=1.0)
        (frames,) = self._pipeline.video_processor.postprocess_video(clamped, output_type="pt")
        self._keep(f"decode/{self._decoded}/cond/frames", _channels_last(frames))

    def _audio(self, waveform: Tensor) -> Tensor:
        request, rate = self._request, self._pipeline.sound_tokenizer.config.sampling_rate
        audio = waveform[:, : int(request.frames / request.fps * rate)].float()
        for tap in ("decode_sound/0/cond/audio", "decode_sound/0/audio"):
            self._keep(tap, audio)
        return waveform

    def _finished(self, result: Any) -> None:
        if self._request.task is not TaskType.INVERSE_DYNAMICS:
            video = _channels_last(result.video)
            self._keep(f"decode/{self._decoded}/video", video)
            self._keep("video", video)
        if self._loud:
            self._keep("audio", self._found["decode_sound/0/audio"])
        if result.action is not None:
            self._keep(f"{self._node}/{self._step - 1}/action", result.action[0])
            self._keep("action", result.action[0])

    def _keep(self, tap: str, tensor: Tensor) -> None:
        self._found[tap] = tensor.clone()


class _Stepped:
    """What schedulers returned since the last `take`; their copies share it."""

    def __init__(self) -> None:
        self._latents: list[Tensor] = []

    def __deepcopy__(self, memo: object) -> _Stepped:
        return self

    def add(self, latent: Tensor) -> None:
        self._latents.append(latent)

    def take(self) -> list[Tensor]:
        taken, self._latents = self._latents, []
        return taken


class _WatchedScheduler(UniPCMultistepScheduler):  # type: ignore[misc]
    """The pipeline's scheduler; `stepped` sees what it and its copies return."""

    stepped: _Stepped

    def step(self, *args: Any, **more: Any) -> Any:
        result = super().step(*args, **more)
        self.stepped.add(result[0])
        return result


def _pipeline(
    transformer: Any, components: Mapping[str, Component], request: ResolvedRequest, stepped: _Stepped
) -> Any:
    scheduler = _WatchedScheduler(
        prediction_type="flow_prediction",
        use_flow_sigmas=True,
        num_train_timesteps=1000,
        flow_shift=float(request.params["shift"]),
    )
    scheduler.stepped = stepped
    pipeline = Cosmos3OmniPipeline(
        transformer=transformer.module,
        text_tokenizer=transformer.tokenizer,
        vae=components["vae"].module,
        scheduler=scheduler,
        sound_tokenizer=components["sound"].module,
        safety_checker=None,
        enable_safety_checker=False,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _image(pixels: Tensor | None) -> Any:
    return None if pixels is None else Image.fromarray(pixels.numpy())


def _frames(pixels: Tensor | None) -> list[Any] | None:
    return None if pixels is None else [Image.fromarray(frame.numpy()) for frame in pixels]


def _channels_last(frames: Tensor) -> Tensor:
    return frames.permute(0, 2, 3, 1).float().cpu()
