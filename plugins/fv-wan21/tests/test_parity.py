"""C1 parity: fv under reference numerics gives the bits of `diffusers.WanPipeline` on the folder it saved."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import diffusers
import pytest
import torch

PROMPTS = {
    "short": "a red circle moving right",
    "long": " ".join(f"a red circle {i} moves right over the green square;" for i in range(90)),
    "unicode": "\U0001f534\U0001f3ac zu\u0308gig fa\u0308hrt \U0001f469\u200d\U0001f680 \uff14\u00d7\uff14 \u5708",
    "entities": "  &amp;lt;red&amp;gt; &quot;circle&quot;&nbsp;\t&amp;amp; square\n\n ",
}
FACTORS: dict[str, tuple[Any, ...]] = {
    "steps": (1, 2, 6, 12),
    "guidance": (1.0, 1.5, 5.0),
    "shift": (1.0, 3.0, 8.0),
    "frames": (1, 5, 9, 17),
    "size": ((16, 16), (48, 32), (64, 64)),
    "prompt": tuple(PROMPTS),
    "negative": (None, " ", "blurry, grey & still"),
    "boundary": (None, 0.9),
}

Row = dict[str, Any]
Pair = tuple[tuple[str, Any], tuple[str, Any]]


def pairs(row: Mapping[str, Any]) -> set[Pair]:
    """Every two factor values that the row has together."""
    return set(itertools.combinations(row.items(), 2))


def all_pairs(factors: Mapping[str, Sequence[Any]]) -> set[Pair]:
    return {
        ((one, a), (other, b))
        for one, other in itertools.combinations(factors, 2)
        for a in factors[one]
        for b in factors[other]
    }


def pairwise(factors: Mapping[str, Sequence[Any]], seed: int = 0) -> Iterator[Row]:
    """Rows that together hold every pair: each is the best of some that start from a pair still missing."""
    rng, missing = random.Random(seed), sorted(all_pairs(factors), key=repr)
    while missing:
        candidates = []
        for _ in range(30):
            row = {name: rng.choice(values) for name, values in factors.items()}
            row |= dict(rng.choice(missing))
            candidates.append(row)
        best = max(candidates, key=lambda row: len(pairs(row).intersection(missing)))
        missing = [pair for pair in missing if pair not in pairs(best)]
        yield best


ROWS = list(pairwise(FACTORS))


def label(row: Mapping[str, Any]) -> str:
    return "-".join(str(value).replace(" ", "") for value in row.values())


def facts_of(row: Mapping[str, Any], seed: int) -> Row:
    return {**row, "prompt": PROMPTS[row["prompt"]], "seed": seed}


def test_reference_is_the_version_that_the_cards_name() -> None:
    from fv_wan21.card import CARDS

    assert {card.parity.reference_version for card in CARDS if card.parity} == {diffusers.__version__}


def test_rows_hold_every_pair_of_factor_values() -> None:
    held = set().union(*map(pairs, ROWS))
    assert held >= all_pairs(FACTORS)
    assert not set().union(*map(pairs, ROWS[:-1])) >= all_pairs(FACTORS)


def test_prompts_are_what_they_stand_for(mine: Any, case_of: Any) -> None:
    adjusted = {
        name: mine.clip(case_of(prompt=prompt, steps=1)).used.adjusted for name, prompt in PROMPTS.items()
    }
    assert {name for name, notes in adjusted.items() if "was cut to the 512" in "".join(notes)} == {"long"}


@pytest.mark.parametrize(("seed", "row"), list(enumerate(ROWS)), ids=map(label, ROWS))
def test_latent_and_frames_equal_the_pipeline(seed: int, row: Row, difference: Callable[..., float]) -> None:
    assert difference(**facts_of(row, seed)) == 0.0


def test_sample_of_the_full_product_equals_the_pipeline(
    soak: bool, difference: Callable[..., float], record_property: Callable[[str, object], None]
) -> None:
    rng, count = random.Random(1), 400 if soak else 2
    record_property("rows compared, all with difference 0.0", count)
    for seed in range(count):
        row = {name: rng.choice(values) for name, values in FACTORS.items()}
        assert difference(**facts_of(row, 1000 + seed)) == 0.0, label(row)


@pytest.mark.parametrize("boundary", [None, 0.9])
@pytest.mark.parametrize("guidance", [1.0, 5.0])
def test_bfloat16_transformer_and_text_encoder_equal_the_pipeline(
    guidance: float, boundary: float | None, difference: Callable[..., float], mine: Any
) -> None:
    assert difference(dtype="bfloat16", guidance=guidance, boundary=boundary, frames=9) == 0.0


def test_bfloat16_run_is_not_a_float32_run(mine: Any, case_of: Any, compare: Callable[..., float]) -> None:
    assert compare(mine.outputs(case_of(dtype="bfloat16")), mine.outputs(case_of())) > 1e-3


@pytest.mark.parametrize("guidance_low", [1.0, 3.0])
def test_guidance_of_the_low_noise_expert_equals_guidance_scale_2(
    guidance_low: float, difference: Callable[..., float]
) -> None:
    assert difference(boundary=0.9, guidance_low=guidance_low) == 0.0


@pytest.mark.parametrize("boundary", [0.0, 0.75, 0.857, 1.0])
def test_experts_part_at_the_pipelines_boundary(boundary: float, difference: Callable[..., float]) -> None:
    """Timesteps are 999, 937, 857, 750, 600, 376: two of the boundaries lie on one, two beyond all."""
    assert difference(boundary=boundary) == 0.0


@pytest.mark.parametrize("seed", [0, 2**32, 2**63, 2**64 - 1])
def test_every_seed_means_the_pipelines_noise(seed: int, difference: Callable[..., float]) -> None:
    assert difference(seed=seed, steps=1) == 0.0


def test_latents_taken_from_the_callback_are_those_that_the_pipeline_returns(
    reference: Any, case_of: Any
) -> None:
    returned = reference.run(case_of(), output_type="latent")
    assert torch.equal(returned[0], reference.outputs(case_of())["latent"])


def test_comparison_sees_a_single_bit_and_refuses_what_is_not_alike(compare: Callable[..., float]) -> None:
    tensor = torch.ones(2, 3)
    nudged = tensor.clone()
    nudged[1, 2] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    assert compare({"latent": tensor}, {"latent": tensor.clone()}) == 0.0
    assert compare({"latent": tensor}, {"latent": nudged}) > 0.0
    wrong = [tensor.double(), tensor[:1], tensor * torch.nan, tensor * torch.inf]
    for other in wrong:
        with pytest.raises(AssertionError):
            compare({"latent": tensor}, {"latent": other})
        with pytest.raises(AssertionError):
            compare({"latent": other}, {"latent": tensor})
    with pytest.raises(AssertionError):
        compare({"latent": tensor}, {"latent": tensor, "video": tensor})
