"""A small card that needs no download and no other plugin: what the kit's fixtures run, for authors to build on.

Its components are torch modules of a few hundred parameters, made from a seed, behind the generic loops.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fv_core.card import ComponentSpec, LatentSpec, LoadContext, LoopSpec, ModelCard, RecipeSpec
from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.program import text_to_video
from fv_core.request import TaskType

CHANNELS, WIDTH, WORDS = 4, 8, 16
FLOW = "flow.euler.cfg/v1"

M = TypeVar("M", bound=nn.Module)


class Part:
    """A module whose operations are methods on lists of calls; calls of one shape share a forward."""

    def __init__(self, module: nn.Module) -> None:
        self.module: Any = module

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return (op, *(tuple(row.shape) for row in call.rows.values() if isinstance(row, Tensor)))

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        outputs: list[ComponentOutput] = getattr(self, op)(calls)
        return outputs


class Text(Part):
    """Op `encode`: one row of embeddings per byte, float32 [WORDS, WIDTH]."""

    def encode(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        codes = [str(call.rows["text"]).encode()[:WORDS].ljust(WORDS, b" ") for call in calls]
        return [returned(embeds=self.module(torch.tensor(list(code)))) for code in codes]


class Denoiser(Part):
    """Op `velocity`: of latents [CHANNELS, F, H, W]."""

    def velocity(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        # Row by row: stacked, a convolution takes another kernel, and rounds otherwise, for another number of rows.
        rows = [self.module.conv(tensor(call, "latent")[None])[0] for call in calls]
        return [returned(velocity=row + self._shift(call)) for row, call in zip(rows, calls, strict=True)]

    def _shift(self, call: ResolvedCall) -> Tensor:
        shift: Tensor = self.module.text(tensor(call, "text").mean(0)).view(-1, 1, 1, 1)
        return shift * (int(call.rows["timestep"]) / 1000)


class Vae(Part):
    """Ops `prepare` and `decode`; a frame's decoding reads the latent frame before it from the cache."""

    def prepare(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        return [returned(latent=tensor(call, "latent") * 0.5) for call in calls]

    def decode(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        return [self.decoded(call) for call in calls]

    def decoded(self, call: ResolvedCall) -> ComponentOutput:
        """One latent frame as pixels [f, 8 H, 8 W, 3], and what the next one reads."""
        latent, (before,) = tensor(call, "latent"), call.caches
        frames = 1 if call.static["first"] else 4
        past = before[0] if before else torch.zeros_like(latent)
        assert isinstance(past, Tensor)
        cells = self.module((latent + past).permute(1, 2, 3, 0))[0]
        height, width, _ = cells.shape
        pixels = cells.view(height, width, 4, 8, 8, 3)[:, :, :frames].permute(2, 0, 3, 1, 4, 5)
        video = pixels.reshape(frames, 8 * height, 8 * width, 3).sigmoid()
        return ComponentOutput(output=CallOutput(tensors={"frames": video}), caches=([latent.clone()],))


class DenoiserModule(nn.Module):
    """A convolution of the latent, and a shift by the text."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(CHANNELS, CHANNELS, 3, padding=1)
        self.text = nn.Linear(WIDTH, CHANNELS)


def text(context: LoadContext) -> Text:
    return Text(filled(context, nn.Embedding, 256, WIDTH))


def denoiser(context: LoadContext) -> Denoiser:
    return Denoiser(filled(context, DenoiserModule))


def vae(context: LoadContext) -> Vae:
    return Vae(filled(context, nn.Linear, CHANNELS, 4 * 8 * 8 * 3))


def filled(context: LoadContext, kind: type[M], *sizes: int) -> M:
    """A module of the given sizes with the context's weights."""
    with torch.device("meta"):
        module = kind(*sizes)
    return context.fill(module)


def returned(**tensors: Tensor) -> ComponentOutput:
    """The output of a call without caches."""
    return ComponentOutput(output=CallOutput(tensors=tensors))


def tensor(call: ResolvedCall, name: str) -> Tensor:
    """A row that is a tensor."""
    row = call.rows[name]
    assert isinstance(row, Tensor)
    return row


CARD = ModelCard(
    model_id="testing/tiny",
    family="testing",
    version="1",
    components={
        part: ComponentSpec(load=f"{__name__}:{part}", subfolders=(part,))
        for part in ("text", "denoiser", "vae")
    },
    loops={
        "denoise": LoopSpec(
            loop="fv_core.loop.flow_denoise:FlowDenoise", semantics=FLOW, binds={"denoiser": "denoiser"}
        ),
        "decode": LoopSpec(
            loop="fv_core.loop.vae_decode:VaeDecode", semantics="vae.decode/v1", binds={"vae": "vae"}
        ),
    },
    programs={TaskType.T2V: text_to_video(encode="text", denoise="denoise", decode="decode")},
    recipe=RecipeSpec(assumes_loop=FLOW, guidance=3.0),
    latent=LatentSpec(channels=CHANNELS),
)
