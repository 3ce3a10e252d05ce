"""The predicted activation peaks agree with live tensors counted on the meta device at the real model's sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fv_bagel import loading, memory
from fv_bagel.card import MOT_7B
from fv_bagel.text import Marks
from fv_core.card import ComponentSpec
from fv_core.loop import ResolvedCall
from fv_core.request import Size
from fv_core.testing.live_memory import ABOVE, BELOW, LivePeak, on_meta

Call = Callable[..., ResolvedCall]


@dataclass(frozen=True, kw_only=True)
class Unfilled:
    """A load context that leaves modules on the meta device."""

    spec: ComponentSpec
    dtype: torch.dtype
    folder: Path | None = None
    seed: int = 0
    device: torch.device = torch.device("meta")

    def config(self, filename: str = "config.json") -> dict[str, object]:
        return dict(self.spec.config)

    def fill(self, module: nn.Module, **how: Any) -> nn.Module:
        return module.to(self.dtype).requires_grad_(False).eval()


class NoWords:
    """Marks are all that a forward needs of a tokenizer."""

    marks = Marks(begin=0, end=1, image_begin=2, image_end=3)


@pytest.fixture
def component(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    monkeypatch.setattr(loading, "_words", lambda folder, vocabulary: NoWords())

    def made(name: str, dtype: torch.dtype) -> Any:
        factory: Any = {"model": loading.mixture, "vision": loading.vision, "vae": loading.vae}[name]
        return factory(Unfilled(spec=spec_of(name), dtype=dtype))

    with on_meta(monkeypatch):
        yield made


def spec_of(name: str) -> ComponentSpec:
    """Of the real card, with fewer layers of the mixture: they are alike, and counting costs time for each."""
    spec = MOT_7B.components[name]
    return replace(spec, config={**spec.config, "num_hidden_layers": 8}) if name == "model" else spec


@pytest.mark.parametrize(("side", "dtype"), [(1024, torch.bfloat16), (512, torch.float32)])
def test_mixture_prediction_agrees_with_the_counted_peak_of_an_edit(
    side: int, dtype: torch.dtype, component: Callable[..., Any], call_of: Call
) -> None:
    model = component("model", dtype)
    seen = (980 if side == 1024 else 518) // 14
    with torch.device("meta"), torch.no_grad():
        latent, tokens = torch.empty(16, side // 8, side // 8), torch.empty((side // 16) ** 2, 64)
        looked, ids = torch.empty(seen**2, 3584, dtype=dtype), torch.zeros(512, dtype=torch.int64)
        with LivePeak(model.module) as peak:
            at = {"position": 0}

            def appended(op: str, context: Any, **rows: Any) -> Any:
                (output,) = model.forward_batch(op, [call_of({**rows, **at}, {}, context)])
                return output.caches[0]

            images = appended("latent_block", [], latent=latent)
            images = appended("vision_block", images, tokens=looked)
            held = [appended("text_block", images, ids=ids), images, appended("text_block", [], ids=ids)]
            rows = {"tokens": tokens, "time": 0.5, "rows": side // 16, **at}
            model.forward_batch("velocity", [call_of(rows, {}, context) for context in held])
    config = spec_of("model").config
    predicted = memory.mixture(MOT_7B.geometry(Size(side, side), 1), config, dtype.itemsize)
    assert BELOW <= predicted / peak.peak <= ABOVE


@pytest.mark.parametrize(("side", "dtype"), [(1024, torch.bfloat16), (512, torch.float32)])
def test_vision_prediction_agrees_with_the_counted_peak(
    side: int,
    dtype: torch.dtype,
    component: Callable[..., Any],
    call_of: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vision = component("vision", dtype)
    seen = vision.fit.size(side, side)
    monkeypatch.setattr(type(vision.fit), "seen", lambda fit, image: image)
    with torch.device("meta"), torch.no_grad(), LivePeak(vision.module) as peak:
        vision.encode(call_of({"image": torch.empty(*seen, 3, dtype=torch.uint8)}))
    config = MOT_7B.components["vision"].config
    predicted = memory.vision(MOT_7B.geometry(Size(side, side), 1), config, dtype.itemsize)
    assert BELOW <= predicted / peak.peak <= ABOVE


@pytest.mark.parametrize("side", [1024, 512])
def test_vae_prediction_agrees_with_the_counted_peak(
    side: int, component: Callable[..., Any], call_of: Call
) -> None:
    vae = component("vae", torch.float32)
    with torch.device("meta"), torch.no_grad(), LivePeak(vae.module) as peak:
        noise, image = torch.empty(16, side // 8, side // 8), torch.empty(side, side, 3, dtype=torch.uint8)
        vae.encode(call_of({"image": image, "noise": noise}))
        vae.decode(call_of({"latent": noise[:, None]}, {"first": True}, []))
    config = MOT_7B.components["vae"].config
    predicted = memory.vae(MOT_7B.geometry(Size(side, side), 1), config, 4)
    assert BELOW <= predicted / peak.peak <= ABOVE
