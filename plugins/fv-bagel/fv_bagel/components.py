"""The three components: operations on single samples over the mixture, the vision tower and the autoencoder.

Reference: ByteDance-Seed/Bagel at 056b5fd5, `Bagel.forward_cache_update_*`, `_forward_flow`, `generate_text`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch
from diffusers import AutoencoderKL
from torch import Tensor

from fv_bagel.grid import Fit, cells, pack, pixels
from fv_bagel.mot import KeyValues, Mixture, Route
from fv_bagel.text import Words
from fv_bagel.vision import Vision
from fv_core.cache import CacheContent
from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import tensor


class _OneByOne:
    """A component whose samples never share a forward: contexts differ in length, and batching changes bits.

    Its operations are its public methods that take a call.
    """

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        run: Callable[[ResolvedCall], ComponentOutput] = getattr(self, op)
        return [run(call) for call in calls]


class MixtureModel(_OneByOne):
    """The mixture and its words. A context is a `paged_kv` cache: keys and values of each layer in turn, [L, H, D].

    tokenize: row or static text (str); outputs ids int64 [L], a framed block, and start int64 [1].
    detokenize: row tokens int64 [N], written after start; text output text.
    text_block: rows ids [L], position (int, of the first); appends L tokens, causal among themselves.
    latent_block: rows latent [C, h, w], position; appends the image's latent tokens, all at one position.
    vision_block: rows tokens [N, D], position; appends the image's vision tokens, all at one position.
    velocity: rows tokens [N, latent width], time in [0, 1], position, static rows (of tokens); reads a context;
        output velocity [N, latent width] in the weights' dtype.
    prefill_sample (row tokens [L]) and decode_sample (row token): as `fv_core.loop.ar_decode` has them.
    """

    def __init__(self, module: Mixture, words: Words, *, latent_patch: int, latent_side: int) -> None:
        self.module = module
        self.words = words
        self._patch = latent_patch
        self._side = latent_side

    @property
    def _device(self) -> torch.device:
        return self.module.vae2llm.weight.device

    def tokenize(self, call: ResolvedCall) -> ComponentOutput:
        text = str(call.rows["text"] if "text" in call.rows else call.static["text"])
        tensors = {"ids": self.words.block(text), "start": self.words.start()}
        return ComponentOutput(output=CallOutput(tensors=tensors))

    def detokenize(self, call: ResolvedCall) -> ComponentOutput:
        text = self.words.text(tensor(call, "tokens"))
        return ComponentOutput(output=CallOutput(tensors={}, texts={"text": text}))

    def text_block(self, call: ResolvedCall) -> ComponentOutput:
        _, context = self._read(call, tensor(call, "ids"))
        return ComponentOutput(output=CallOutput(tensors={}), caches=(context,))

    def latent_block(self, call: ResolvedCall) -> ComponentOutput:
        latent = tensor(call, "latent").to(self._device)
        tokens = pack(latent, self._patch)
        time = torch.zeros(1, device=self._device)  # one row for all tokens, as the reference has it
        rows = self._framed(self._embedded(tokens, time, latent.shape[1] // self._patch))
        _, kept = self._look(call, rows, route(len(rows), self._device))
        return ComponentOutput(output=CallOutput(tensors={}), caches=(_listed(kept),))

    def vision_block(self, call: ResolvedCall) -> ComponentOutput:
        rows = self._framed(tensor(call, "tokens").to(self._device))
        _, kept = self._look(call, rows, None)
        return ComponentOutput(output=CallOutput(tensors={}), caches=(_listed(kept),))

    def velocity(self, call: ResolvedCall) -> ComponentOutput:
        tokens = tensor(call, "tokens").to(self._device)
        times = torch.full((len(tokens),), float(call.rows["time"]), device=self._device)
        rows = self._framed(self._embedded(tokens, times, int(call.static["rows"])))
        hidden, _ = self._look(call, rows, route(len(rows), self._device), keep=False)
        velocity = self.module.llm2vae(hidden)[1:-1]
        return ComponentOutput(output=CallOutput(tensors={"velocity": velocity}), caches=(None,))

    def prefill_sample(self, call: ResolvedCall) -> ComponentOutput:
        fed = call.rows["tokens"] if "tokens" in call.rows else torch.tensor([int(call.rows["token"])])
        assert isinstance(fed, Tensor)
        hidden, context = self._read(call, fed)
        logits = self.module.language_model.lm_head(hidden[-1:])[0].float()
        token, logprob = sampled(logits, float(call.rows["temperature"]), float(call.rows["uniform"]))
        position = torch.tensor(_position(call) + len(fed))
        tensors = {"token": token, "logprob": logprob, "position": position}
        return ComponentOutput(output=CallOutput(tensors=tensors), caches=(context,))

    decode_sample = prefill_sample

    def _read(self, call: ResolvedCall, ids: Tensor) -> tuple[Tensor, CacheContent]:
        """Text after the call's context: hidden rows [L, D] and the context with it."""
        stack = self.module.language_model.model
        first = _position(call)
        positions = torch.arange(first, first + len(ids), device=self._device)
        rows = stack.embed_tokens(ids.to(self._device))
        hidden, kept = stack(rows, positions, past=_pairs(call.caches[0]), causal=True)
        return hidden, _listed(kept)

    def _look(
        self, call: ResolvedCall, rows: Tensor, experts: Route | None, *, keep: bool = True
    ) -> tuple[Tensor, list[KeyValues]]:
        """An image block after the call's context; its tokens share one position and see each other."""
        positions = torch.full((len(rows),), _position(call), device=self._device)
        hidden, kept = self.module.language_model.model(
            rows, positions, past=_pairs(call.caches[0]), route=experts, keep=keep
        )
        return hidden, kept

    def _embedded(self, tokens: Tensor, times: Tensor, rows: int) -> Tensor:
        places = cells(rows, len(tokens) // rows, self._side).to(self._device)
        return self.module.embed_latent(tokens, times, places)

    def _framed(self, rows: Tensor) -> Tensor:
        """An image block between its marks, which are text."""
        marks = self.words.marks
        ids = torch.tensor([marks.image_begin, marks.image_end], device=self._device)
        begin, end = self.module.language_model.model.embed_tokens(ids).split(1)
        return torch.cat([begin, rows.to(begin.dtype), end])


class VisionModel(_OneByOne):
    """Op `encode`: row image uint8 [H, W, 3]; output tokens [N, D]. The image is resized where `fit` says so."""

    def __init__(self, module: Vision, *, patch: int, side: int, fit: Fit) -> None:
        self.module = module
        self.patch = patch
        self.side = side
        self.fit = fit

    def encode(self, call: ResolvedCall) -> ComponentOutput:
        weight = self.module.vit_pos_embed.pos_embed
        image = pixels(self.fit.seen(tensor(call, "image")).to(weight.device))
        patches = pack(image, self.patch).to(weight.dtype)
        rows, columns = (side // self.patch for side in image.shape[1:])
        tokens = self.module(patches, cells(rows, columns, self.side).to(weight.device))
        return ComponentOutput(output=CallOutput(tensors={"tokens": tokens}))


class Vae(_OneByOne):
    """The image autoencoder.

    encode: rows image uint8 [H, W, 3], noise [C, h, w]; output latent fp32 [C, h, w], a sample of the posterior.
    prepare: row latent [C, 1, h, w]; output latent in the decoder's own scale.
    decode: row latent [C, 1, h, w]; output frames fp32 [1, H, W, 3] in [0, 1]. Its `stream` cache stays empty.
    """

    def __init__(self, module: AutoencoderKL) -> None:
        self.module = module
        self._scale = float(module.config.scaling_factor)
        self._shift = float(module.config.shift_factor)

    def encode(self, call: ResolvedCall) -> ComponentOutput:
        weight = self.module.decoder.conv_in.weight
        image = pixels(tensor(call, "image").to(weight.device)).to(weight.dtype)
        mean, logvar = self.module.encoder(image.unsqueeze(0))[0].chunk(2)
        noise = tensor(call, "noise").to(mean)
        latent = self._scale * (mean + torch.exp(0.5 * logvar) * noise - self._shift)
        return ComponentOutput(output=CallOutput(tensors={"latent": latent.float()}))

    def prepare(self, call: ResolvedCall) -> ComponentOutput:
        latent = tensor(call, "latent").to(self.module.decoder.conv_in.weight)
        return ComponentOutput(output=CallOutput(tensors={"latent": latent / self._scale + self._shift}))

    def decode(self, call: ResolvedCall) -> ComponentOutput:
        image = self.module.decoder(tensor(call, "latent").transpose(0, 1))
        frames = (image * 0.5 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).float()
        return ComponentOutput(output=CallOutput(tensors={"frames": frames}), caches=([],))


def route(length: int, device: torch.device) -> Route:
    """Of a framed block of latent tokens: the marks go to the understanding expert, the rest to the generation one."""
    rows = torch.arange(length, device=device)
    return Route(understanding=rows[[0, -1]], generation=rows[1:-1])


def sampled(logits: Tensor, temperature: float, uniform: float) -> tuple[Tensor, Tensor]:
    """The token that `uniform` in [0, 1) picks from logits [V], and its log-probability; temperature 0: the likeliest.

    Both are 0-d. The log-probability is that of the distribution sampled from; of the plain one at temperature 0.
    """
    logprobs = torch.log_softmax(logits if temperature == 0 else logits / temperature, dim=-1)
    if temperature == 0:
        token = logits.argmax()
    else:
        sums = logprobs.double().exp().cumsum(0)
        token = torch.searchsorted(sums, uniform * sums[-1], right=True).clamp(max=len(logits) - 1)
    return token, logprobs[token]


def _pairs(content: CacheContent) -> list[KeyValues]:
    tensors = [item for item in content if isinstance(item, Tensor)]
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def _listed(kept: Sequence[KeyValues]) -> CacheContent:
    return [tensor for pair in kept for tensor in pair]


def _position(call: ResolvedCall) -> int:
    position = call.rows["position"]
    assert not isinstance(position, str)
    return int(position)
