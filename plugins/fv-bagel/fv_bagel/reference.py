"""The reference of the cards' claims: the published inference, transcribed plainly over the card's own modules.

Transcribed from ByteDance-Seed/Bagel at 056b5fd5 (`inferencer.py`, `bagel.py`, `qwen2_navit.py`), attention by torch's
scaled dot product; equal to that code bit for bit on the stored recordings. It shares the modules' parameters with fv
and nothing else: neither its way through a layer, nor its contexts, guidance, sampler or decoding loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fv_bagel.prompts import PLANNING, REASONING
from fv_core.card import ModelCard
from fv_core.loop import Component
from fv_core.request import ResolvedRequest, TaskType


def record(
    components: Mapping[str, Component],
    card: ModelCard,
    request: ResolvedRequest,
    inputs: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Runs the published inference on one request and returns its taps in order."""
    with torch.device(next(components["model"].module.parameters()).device):
        run = _Inference(components, card, request, inputs.get("request.image"))
        if request.task is TaskType.QA:
            run.answer()
        else:
            run.image()
    return run.taps


@dataclass
class _Context:
    """Keys and values per layer, and the next position."""

    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    position: int = 0

    def copy(self) -> _Context:
        return _Context(dict(self.keys), dict(self.values), self.position)


class _Inference:
    """One request."""

    def __init__(
        self,
        components: Mapping[str, Component],
        card: ModelCard,
        request: ResolvedRequest,
        image: Tensor | None,
    ) -> None:
        self.taps: dict[str, Tensor] = {}
        self.model: Any = components["model"].module
        self.words: Any = components["model"].words  # type: ignore[attr-defined]  # of this plugin's component
        self.components, self.request, self.image_given = components, request, image
        self.params = request.params
        self.generator = torch.Generator("cpu").manual_seed(request.seed)
        self.side = int(card.components["model"].params["latent_side"])

    def image(self) -> None:
        context, no_text, no_image = _Context(), _Context(), _Context()
        prompt = self._ids("prompt", self.request.prompt, start=True)
        if self.params["think"]:
            system = self._ids("system", PLANNING)
            self._read(system, context)
            self._read(system, no_image)
        no_text = context.copy()
        if self.image_given is not None:
            latent, seen = self._encoded(), self._seen()
            self._look_at_latent(latent, context)
            self._look_at(seen, context)
            no_text = context.copy()
        self._read(prompt, context)
        self._read(prompt, no_image)
        thought = None
        if self.params["think"]:
            thought = self._written("think", context.copy())
            self._read(self._ids("thought_ids", thought), context)
        latent = self._denoised(context, no_text, no_image)
        self._decoded(latent)
        if thought is not None:
            self.taps["text"] = _bytes(thought)

    def answer(self) -> None:
        context = _Context()
        prompt = self._ids("prompt", self.request.prompt, start=True)
        if self.params["think"]:
            self._read(self._ids("system", REASONING), context)
        if self.image_given is not None:
            self._look_at(self._seen(), context)
        self._read(prompt, context)
        self.taps["text"] = _bytes(self._written("answer", context))

    # What is read

    def _ids(self, node: str, text: str, *, start: bool = False) -> Tensor:
        marks = self.words.marks
        ids = torch.tensor([marks.begin, *self.words.tokenizer.encode(text), marks.end])
        first = torch.tensor([marks.begin])
        self._tap(node, 0, {"ids": ids, "start": first}, {"ids": ids, **({"start": first} if start else {})})
        return ids

    def _encoded(self) -> Tensor:
        vae: Any = self.components["vae"].module
        x = self.image_given.permute(2, 0, 1)[None].float() / 127.5 - 1  # type: ignore[union-attr]  # given to edit
        mean, logvar = torch.chunk(vae.encoder(x), 2, dim=1)
        z = mean + torch.exp(0.5 * logvar) * self._noise(*mean.shape)
        latent = vae.config.scaling_factor * (z - vae.config.shift_factor)
        outputs = {"latent": latent[0]}
        self._tap("encode", 0, outputs, {**outputs, "rng": self.generator.get_state()})
        encoded: Tensor = latent[0]
        return encoded

    def _seen(self) -> Tensor:
        vision: Any = self.components["vision"]
        image = vision.fit.seen(self.image_given).permute(2, 0, 1).float() / 127.5 - 1
        rows, columns = image.shape[1] // vision.patch, image.shape[2] // vision.patch
        split = image.reshape(3, rows, vision.patch, columns, vision.patch)
        patches = torch.einsum("chpwq->hwpqc", split).reshape(rows * columns, -1)
        places = _places(rows, columns, vision.side)
        tokens: Tensor = vision.module(patches.to(vision.module.vit_pos_embed.pos_embed.dtype), places)
        self._tap("look", 0, {"tokens": tokens}, {"tokens": tokens})
        return tokens

    def _read(self, ids: Tensor, context: _Context) -> Tensor:
        positions = torch.arange(context.position, context.position + len(ids))
        hidden = self._forward(self._embed(ids), positions, context, keep=True, causal=True)
        context.position += len(ids)
        return hidden

    def _look_at(self, tokens: Tensor, context: _Context) -> None:
        rows = self._between_marks(tokens)
        self._forward(rows, torch.full((len(rows),), context.position), context, keep=True)
        context.position += 1

    def _look_at_latent(self, latent: Tensor, context: _Context) -> None:
        rows = self._latent_rows(
            _packed(latent), torch.tensor([0]), latent.shape[1] // 2, latent.shape[2] // 2
        )
        self._forward(rows, torch.full((len(rows),), context.position), context, keep=True, latents=True)
        context.position += 1

    def _latent_rows(self, tokens: Tensor, times: Tensor, rows: int, columns: int) -> Tensor:
        weight = self.model.vae2llm.weight
        frequencies = torch.exp(-math.log(10000) * torch.arange(128, dtype=torch.float32) / 128)
        waves = times[:, None].float() * frequencies[None]
        waves = torch.cat([torch.cos(waves), torch.sin(waves)], dim=-1)
        embedded = self.model.time_embedder.mlp(waves.to(weight.dtype))
        table = self.model.latent_pos_embed.pos_embed[_places(rows, columns, self.side)]
        return self._between_marks(self.model.vae2llm(tokens.to(weight.dtype)) + embedded + table)

    def _between_marks(self, tokens: Tensor) -> Tensor:
        marks = self._embed(torch.tensor([self.words.marks.image_begin, self.words.marks.image_end]))
        rows = marks.new_zeros(len(tokens) + 2, marks.shape[1])
        rows[0], rows[-1], rows[1:-1] = marks[0], marks[1], tokens.to(marks.dtype)
        return rows

    def _embed(self, ids: Tensor) -> Tensor:
        rows: Tensor = self.model.language_model.model.embed_tokens(ids)
        return rows

    # One forward of the stack

    def _forward(
        self,
        rows: Tensor,
        positions: Tensor,
        context: _Context,
        *,
        keep: bool = False,
        causal: bool = False,
        latents: bool = False,
    ) -> Tensor:
        stack = self.model.language_model.model
        text = torch.tensor([0, len(rows) - 1]) if latents else torch.arange(len(rows))
        latent = torch.arange(1, len(rows) - 1) if latents else torch.arange(0)
        cos, sin = (part[0, :, None] for part in stack.rotary_emb(rows, positions[None]))
        for number, layer in enumerate(stack.layers):
            split = _Split(text, latent)
            normed = split(layer, "input_layernorm", rows)
            q, k, v = (split(layer.self_attn, f"{part}_proj", normed) for part in "qkv")
            dim = layer.self_attn.head_dim
            q, k, v = q.view(len(rows), -1, dim), k.view(len(rows), -1, dim), v.view(len(rows), -1, dim)
            if latents:
                q, k = q.to(torch.float32), k.to(torch.float32)
            q, k = split(layer.self_attn, "q_norm", q), split(layer.self_attn, "k_norm", k)
            q, k = ((x * cos + _rotated(x) * sin).to(v.dtype) for x in (q, k))
            if number in context.keys:
                k, v = torch.cat([context.keys[number], k]), torch.cat([context.values[number], v])
            attended = _attention(q, k, v, causal).reshape(len(rows), -1)
            rows = rows + split(layer.self_attn, "o_proj", attended)
            rows = rows + split(layer, "mlp", split(layer, "post_attention_layernorm", rows))
            if keep:
                context.keys[number], context.values[number] = k, v
        return _Split(text, latent)(stack, "norm", rows)

    # What is written and made

    def _written(self, node: str, context: _Context) -> str:
        """Greedy, or by fv's uniform numbers where there is a temperature: the published sampler has a global state."""
        temperature, draws = (
            float(self.params["temperature"]),
            torch.Generator("cpu").manual_seed(self.request.seed),
        )
        marks, written, token = self.words.marks, [], torch.tensor(self.words.marks.begin)
        limit = int(self.params["max_tokens"])
        for step in range(limit):
            uniform = float(torch.rand((), generator=draws, dtype=torch.float64, device="cpu"))
            hidden = self._read(token[None], context)
            logits = self.model.language_model.lm_head(hidden)[0].float()
            token = torch.argmax(logits) if temperature == 0 else _drawn(logits / temperature, uniform)
            logprob = torch.log_softmax(logits if temperature == 0 else logits / temperature, -1)[token]
            written.append(int(token))
            ended = int(token) == marks.end or step == limit - 1
            sampled = {"token": token, "logprob": logprob, "position": torch.tensor(context.position)}
            self._tap(node, step, sampled, {"tokens": torch.tensor(written)} if ended else {})
            if ended:
                break
        text: str = self.words.tokenizer.decode([marks.begin, *written])
        return text.split("<|im_end|>")[0].split("<|im_start|>")[1]

    def _denoised(self, context: _Context, no_text: _Context, no_image: _Context) -> Tensor:
        request, params = self.request, self.params
        rows, columns = request.size.height // 16, request.size.width // 16
        x = self._noise(rows * columns, 64)
        times, shift = torch.linspace(1, 0, request.steps + 1), float(params["shift"])
        times = shift * times / (1 + (shift - 1) * times)
        for step, t in enumerate(times[:-1]):
            text_scale, image_scale = request.guidance, float(params["image_guidance"])
            if not (t > float(params["interval_low"]) and t <= float(params["interval_high"])):
                text_scale = image_scale = 1.0

            def flow(seen: _Context, branch: str, told: bool = True) -> Tensor:
                block = self._latent_rows(x, torch.full((len(x),), float(t)), rows, columns)  # noqa: B023
                positions = torch.full((len(block),), seen.position)
                hidden = self._forward(block, positions, seen, latents=True)
                velocity: Tensor = self.model.llm2vae(hidden)[1:-1]
                if told:
                    self.taps[f"denoise/{step}/{branch}/velocity"] = velocity  # noqa: B023
                return velocity

            v = flow(context, "context")
            if text_scale > 1.0:
                # Without an image and a thought the published code computes the first branch twice.
                third = self.image_given is not None or bool(params["think"])
                v_text = flow(no_text, "no_text")
                v_image = flow(no_image, "no_image", told=third) if image_scale > 1.0 else None
                v = _combined(v, v_text, v_image, text_scale, image_scale, params)
            x = x - v * (times[step] - times[step + 1])
            if step < request.steps - 1:
                self.taps[f"denoise/{step}/latent"] = x
        latent = torch.einsum("hwpqc->chpwq", x.reshape(rows, columns, 2, 2, 16))
        latent = latent.reshape(16, 1, rows * 2, columns * 2)
        self.taps[f"denoise/{request.steps - 1}/latent"] = latent
        return latent

    def _decoded(self, latent: Tensor) -> None:
        vae: Any = self.components["vae"].module
        z = latent / vae.config.scaling_factor + vae.config.shift_factor
        self.taps["decode/0/cond/latent"] = z
        image = (vae.decoder(z[:, 0][None]) * 0.5 + 0.5).clamp(0, 1).permute(0, 2, 3, 1)
        self._tap("decode", 1, {"frames": image}, {"video": image})
        self.taps["video"] = image

    def _noise(self, *shape: int) -> Tensor:
        """Drawn on the CPU, wherever it is used."""
        drawn = torch.randn(shape, generator=self.generator, device="cpu")
        return drawn.to(self.model.vae2llm.weight.device)

    def _tap(self, node: str, step: int, outputs: Mapping[str, Tensor], made: Mapping[str, Tensor]) -> None:
        self.taps |= {f"{node}/{step}/cond/{name}": value for name, value in outputs.items()}
        self.taps |= {f"{node}/{step}/{name}": value for name, value in made.items()}


class _Split:
    """Rows of text through a layer's part, rows of latents through its copy for generation."""

    def __init__(self, text: Tensor, latent: Tensor) -> None:
        self._text, self._latent = text, latent

    def __call__(self, owner: nn.Module, part: str, rows: Tensor) -> Tensor:
        seen = owner.get_submodule(part)(rows[self._text])
        out: Tensor = seen.new_zeros((len(rows), *seen.shape[1:]))
        out[self._text] = seen
        if len(self._latent):
            out[self._latent] = owner.get_submodule(f"{part}_moe_gen")(rows[self._latent])
        return out


def _combined(
    v: Tensor, v_text: Tensor, v_image: Tensor | None, text_scale: float, image_scale: float, params: Any
) -> Tensor:
    least, kind = float(params["renorm_min"]), params["renorm"]
    guided = v_text + text_scale * (v - v_text)
    if kind == "text_channel":
        lengths = (
            torch.norm(v.float(), dim=-1, keepdim=True),
            torch.norm(guided.float(), dim=-1, keepdim=True),
        )
        guided = guided * (lengths[0] / (lengths[1] + 1e-8)).clamp(min=least, max=1.0)
    if v_image is not None:
        guided = v_image + image_scale * (guided - v_image)
    if kind == "global":
        guided = guided * (torch.norm(v.float()) / (torch.norm(guided.float()) + 1e-8)).clamp(
            min=least, max=1.0
        )
    elif kind == "channel":
        lengths = (
            torch.norm(v.float(), dim=-1, keepdim=True),
            torch.norm(guided.float(), dim=-1, keepdim=True),
        )
        guided = guided * (lengths[0] / (lengths[1] + 1e-8)).clamp(min=least, max=1.0)
    return guided


def _attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q)) if causal else None
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)[0].transpose(0, 1)


def _rotated(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def _packed(latent: Tensor) -> Tensor:
    channels, height, width = latent.shape
    split = latent.reshape(channels, height // 2, 2, width // 2, 2)
    return torch.einsum("chpwq->hwpqc", split).reshape(-1, 4 * channels)


def _places(rows: int, columns: int, side: int) -> Tensor:
    return torch.tensor([row * side + column for row in range(rows) for column in range(columns)])


def _drawn(logits: Tensor, uniform: float) -> Tensor:
    sums = torch.log_softmax(logits, -1).double().exp().cumsum(0)
    return (sums <= uniform * sums[-1]).sum()


def _bytes(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)
