"""Guidance: which passes a step makes, how they combine, and what of it the reference cannot do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers.pipelines.ltx2.pipeline_ltx2 import rescale_noise_cfg

from fv_core.errors import RequestError
from fv_core.request import Numerics, ResolvedRequest, Size, TaskType
from fv_ltx2.guidance import COND, ISOLATED, SKIPPED, UNCOND, Scales, branches, combine
from fv_ltx2.scales import scales_of


def request(guidance: float = 3.0, numerics: Numerics = Numerics.REFERENCE, **params: Any) -> ResolvedRequest:
    return ResolvedRequest(
        model="ltx2/tiny-base",
        task=TaskType.T2V,
        prompt="a",
        negative_prompt="",
        seed=0,
        size=Size(32, 32),
        frames=9,
        fps=24.0,
        steps=2,
        guidance=guidance,
        numerics=numerics,
        params=params,
    )


@pytest.mark.parametrize(
    ("video", "audio", "made"),
    [
        (Scales(), Scales(), (COND,)),
        (Scales(cfg=2.0), Scales(), (UNCOND, COND)),
        (Scales(), Scales(stg=0.1), (COND, SKIPPED)),
        (Scales(), Scales(modality=2.0), (COND, ISOLATED)),
        (Scales(rescale=1.0), Scales(), (COND,)),
        (Scales(cfg=2.0, stg=1.0), Scales(modality=2.0), (UNCOND, COND, SKIPPED, ISOLATED)),
    ],
)
def test_passes_are_those_that_either_modality_needs(
    video: Scales, audio: Scales, made: tuple[str, ...]
) -> None:
    assert branches(video, audio) == made


def test_neutral_scales_leave_the_conditional_prediction() -> None:
    x0 = torch.randn(5, 3)
    assert torch.equal(combine({COND: x0}, Scales()), x0)


def test_terms_add_up() -> None:
    passes = {name: torch.randn(5, 3) for name in (UNCOND, COND, SKIPPED, ISOLATED)}
    cond = passes[COND]
    expected = (
        cond
        + 2.0 * (cond - passes[UNCOND])
        + 0.5 * (cond - passes[SKIPPED])
        + 1.5 * (cond - passes[ISOLATED])
    )
    assert torch.equal(combine(passes, Scales(cfg=3.0, stg=0.5, modality=2.5)), expected)
    rescaled = combine(passes, Scales(cfg=3.0, stg=0.5, modality=2.5, rescale=0.7))
    torch.testing.assert_close(rescaled, rescale_noise_cfg(expected[None], cond[None], 0.7)[0])


def test_full_rescaling_gives_the_conditional_spread() -> None:
    passes = {UNCOND: torch.randn(50, 8), COND: torch.randn(50, 8)}
    assert float(combine(passes, Scales(cfg=5.0, rescale=1.0)).std()) == pytest.approx(
        float(passes[COND].std()), rel=1e-5
    )


def test_guidance_of_one_is_off_for_both() -> None:
    video, audio = scales_of(request(guidance=1.0, audio_guidance=7.0))
    assert (video.cfg, audio.cfg) == (1.0, 1.0)


def test_terms_that_a_card_does_not_offer_are_off() -> None:
    assert scales_of(request(guidance=1.0)) == (Scales(), Scales())


@pytest.mark.parametrize("term", ["stg", "rescale"])
def test_term_off_for_audio_alone_is_refused_where_the_reference_must_be_equalled(term: str) -> None:
    asked: dict[str, Any] = {term: 0.5, f"audio_{term}": 0.0}
    with pytest.raises(RequestError) as caught:
        scales_of(request(**asked))
    assert caught.value.code == "FV314"
    _, audio = scales_of(request(numerics=Numerics.EXACT, **asked))
    assert getattr(audio, term) == 0.0
