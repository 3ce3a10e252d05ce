"""The three components: operations on single samples over the mixture, the vision tower and the autoencoder.

Reference: ByteDance-Seed/Bagel at 056b5fd5, `Bagel.forward_cache_update_*`, `_forward_flow`, `generate_text`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeAlias

import torch
from diffusers import AutoencoderKL
from torch import Tensor

from fv_bagel.grid import Fit, cells, pack, pixels
from fv_bagel.mot import KeyValues, Mixture, Route
from fv_bagel.text import Words
from fv_bagel.vision import Vision
from fv_core.cache import CacheContent
from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.packing import LeastRows, product, size_class
from fv_core.loop.rows import number, tensor, whole

Single: TypeAlias = Callable[[ResolvedCall], ComponentOutput]
Packed: TypeAlias = Callable[[Sequence[ResolvedCall]], list[ComponentOutput]]


class _OneByOne:
    """A component whose samples never share a forward: convolutions and towers take one image at a time.

    Its operations are its public methods that take a call.
    """

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        run: Callable[[ResolvedCall], ComponentOutput] = getattr(self, op)
        return [run(call) for call in calls]


class MixtureModel:
    """The mixture and its words. A context is a `paged_kv` cache: keys and values of each layer in turn, [L, H, D].

    tokenize: row or static text (str); outputs ids int64 [L], a framed block, and start int64 [1].
    detokenize: row tokens int64 [N], written after start; text output text.
    text_block: rows ids [L], position (int, of the first); appends L tokens, causal among themselves.
    latent_block: rows latent [C, h, w], position; appends the image's latent tokens, all at one position.
    vision_block: rows tokens [N, D], position; appends the image's vision tokens, all at one position.
    velocity: rows tokens [N, latent width], time in [0, 1], position, rows (of tokens); reads a context;
        output velocity [N, latent width] in the weights' dtype.
    prefill_sample (row tokens [L]) and decode_sample (row token): as `fv_core.loop.ar_decode` has them.

    The last six share a forward, whatever the lengths of samples and contexts: rows are packed, and attention is each
    sample's own. Under `exact` products have enough rows for their number not to matter, of a sample alone too.
    """

    def __init__(self, module: Mixture, words: Words, *, latent_patch: int, latent_side: int) -> None:
        self.module = module
        self.words = words
        self._patch = latent_patch
        self._side = latent_side
        self._single: Mapping[str, Single] = {"tokenize": self._tokenize, "detokenize": self._detokenize}
        self._packed: Mapping[str, Packed] = {
            "text_block": self._text_block,
            "latent_block": self._latent_block,
            "vision_block": self._vision_block,
            "velocity": self._velocity,
            "prefill_sample": self._sample,
            "decode_sample": self._sample,
        }
        self._least = LeastRows(module.rowwise)

    @property
    def _device(self) -> torch.device:
        return self.module.vae2llm.weight.device

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        if op in self._packed and self._least.share(call):
            return size_class(self._rows(op, call))
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        if op in self._packed:
            return self._packed[op](calls)
        return [self._single[op](call) for call in calls]

    def _rows(self, op: str, call: ResolvedCall) -> int:
        """How many rows the call has in a packed sequence, the marks of an image aside."""
        if op == "decode_sample":
            return 1
        if op == "latent_block":
            return tensor(call, "latent")[0].numel() // self._patch**2
        return len(tensor(call, "ids" if op == "text_block" else "tokens"))

    def _tokenize(self, call: ResolvedCall) -> ComponentOutput:
        text = str(call.rows["text"] if "text" in call.rows else call.static["text"])
        tensors = {"ids": self.words.block(text), "start": self.words.start()}
        return ComponentOutput(output=CallOutput(tensors=tensors))

    def _detokenize(self, call: ResolvedCall) -> ComponentOutput:
        text = self.words.text(tensor(call, "tokens"))
        return ComponentOutput(output=CallOutput(tensors={}, texts={"text": text}))

    def _text_block(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        _, contexts = self._read(calls, [tensor(call, "ids") for call in calls])
        return _appended(contexts)

    def _latent_block(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        rows = []
        for call in calls:
            latent = tensor(call, "latent").to(self._device)
            time = torch.zeros(1, device=self._device)  # one row for all tokens, as the reference has it
            tokens = pack(latent, self._patch)
            rows.append(self._framed(self._embedded(tokens, time, latent.shape[1] // self._patch)))
        _, kept = self._look(calls, rows, latents=True)
        return _appended(map(_listed, kept))

    def _vision_block(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        rows = [self._framed(tensor(call, "tokens").to(self._device)) for call in calls]
        _, kept = self._look(calls, rows, latents=False)
        return _appended(map(_listed, kept))

    def _velocity(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        rows = []
        for call in calls:
            tokens = tensor(call, "tokens").to(self._device)
            times = torch.full((len(tokens),), number(call, "time"), device=self._device)
            rows.append(self._framed(self._embedded(tokens, times, whole(call, "rows"))))
        hidden, _ = self._look(calls, rows, latents=True, keep=False)
        velocities = [self.module.llm2vae(sample)[1:-1] for sample in hidden]
        outputs = [CallOutput(tensors={"velocity": velocity}) for velocity in velocities]
        return [ComponentOutput(output=output, caches=(None,)) for output in outputs]

    def _sample(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        fed = [_fed(call) for call in calls]
        hidden, contexts = self._read(calls, fed)
        last = torch.cat([sample[-1:] for sample in hidden])
        logits = product(self.module.language_model.lm_head, last, self._least.of(calls)).float()
        outputs = []
        for call, own, ids in zip(calls, logits, fed, strict=True):
            token, logprob = sampled(own, number(call, "temperature"), number(call, "uniform"))
            position = torch.tensor(whole(call, "position") + len(ids))
            outputs.append(CallOutput(tensors={"token": token, "logprob": logprob, "position": position}))
        pairs = zip(outputs, contexts, strict=True)
        return [ComponentOutput(output=output, caches=(context,)) for output, context in pairs]

    def _read(
        self, calls: Sequence[ResolvedCall], ids: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[CacheContent]]:
        """Texts after their contexts: of each hidden rows [L, D] and the context with it."""
        stack = self.module.language_model.model
        firsts = [whole(call, "position") for call in calls]
        hidden, kept = stack(
            [stack.embed_tokens(own.to(self._device)) for own in ids],
            [
                torch.arange(first, first + len(own), device=self._device)
                for first, own in zip(firsts, ids, strict=True)
            ],
            past=[_pairs(call.caches[0]) for call in calls],
            causal=True,
            least=self._least.of(calls),
        )
        return hidden, list(map(_listed, kept))

    def _look(
        self, calls: Sequence[ResolvedCall], rows: Sequence[Tensor], *, latents: bool, keep: bool = True
    ) -> tuple[list[Tensor], list[list[KeyValues]]]:
        """Image blocks after their contexts; tokens of a block share one position and see each other."""
        found: tuple[list[Tensor], list[list[KeyValues]]] = self.module.language_model.model(
            rows,
            [
                torch.full((len(own),), whole(call, "position"), device=self._device)
                for call, own in zip(calls, rows, strict=True)
            ],
            past=[_pairs(call.caches[0]) for call in calls],
            routes=[route(len(own), self._device) for own in rows] if latents else None,
            keep=keep,
            least=self._least.of(calls),
        )
        return found

    def _embedded(self, tokens: Tensor, times: Tensor, rows: int) -> Tensor:
        """Latent tokens as rows, sample by sample: the products are small, and the same as the reference's."""
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


def _appended(contexts: Iterable[CacheContent]) -> list[ComponentOutput]:
    return [ComponentOutput(output=CallOutput(tensors={}), caches=(context,)) for context in contexts]


def _fed(call: ResolvedCall) -> Tensor:
    """The tokens to read: a prompt, or the one written last."""
    return tensor(call, "tokens") if "tokens" in call.rows else torch.tensor([whole(call, "token")])
