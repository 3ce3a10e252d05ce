"""The trained tiny model draws what it is asked for, is an ordinary Wan checkpoint, and says what it cannot draw."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from transformers import AutoTokenizer, UMT5EncoderModel

import fv_wan21
from fv_core import Engine
from fv_core.request import Numerics, Request
from fv_core.training.data.scenes import Labels, Split, combinations, draw, render, vocabulary
from fv_core.training.rewards.shapes import read
from fv_wan21.card import MICRO, TINY
from fv_wan21.loading import _tokenizer
from fv_wan21.tiny import WORDS

FOLDER = Path(fv_wan21.__file__).parent / "assets" / "tiny"
PROMPT = "a red circle moving right on a black background"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    torch.set_num_threads(1)
    with Engine([TINY, MICRO], device="cpu", dtype="float32") as made:
        yield made


def test_it_shows_what_the_prompt_says(engine: Engine) -> None:
    """Twelve prompts, four of them of held-out combinations; benchmarks/tiny_quality.py has the whole count."""
    asked = [*combinations(Split.SEEN, WORDS)[::20], *combinations(Split.HELD_OUT, WORDS)[::8]]
    requests = [
        Request(prompt=labels.caption(0), model=TINY.model_id, seed=place)
        for place, labels in enumerate(asked)
    ]
    clips = [result.clip for result in engine.run_many(requests, numerics="fast")]
    hits = [read(clip.frames).hits(labels) for clip, labels in zip(clips, asked, strict=True) if clip]
    assert len(hits) == 12
    assert all(hit["direction"] and hit["background"] for hit in hits)
    assert sum(hit["all"] for hit in hits) >= 9


def test_the_untrained_classes_show_none_of_it(engine: Engine) -> None:
    clip = engine.run(Request(prompt=PROMPT, model=MICRO.model_id, seed=1, size=(64, 64), frames=9))
    labels = Labels(shape="circle", colour="red", direction="right", background="black")
    assert not read(clip.frames).hits(labels)["all"]


def test_it_is_an_ordinary_wan_checkpoint(engine: Engine) -> None:
    """diffusers' own readers and pipeline, on the files as they lie in the package: the same clip to the bit."""
    parts: dict[str, Any] = {
        "tokenizer": AutoTokenizer.from_pretrained(FOLDER / "tokenizer"),
        "text_encoder": UMT5EncoderModel.from_pretrained(FOLDER / "text_encoder", dtype=torch.float32),
        "transformer": WanTransformer3DModel.from_pretrained(
            FOLDER / "transformer", torch_dtype=torch.float32
        ),
        "vae": AutoencoderKLWan.from_pretrained(FOLDER / "vae", torch_dtype=torch.float32),
    }
    scheduler = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=3.0
    )
    pipeline = WanPipeline(scheduler=scheduler, **parts)
    pipeline.set_progress_bar_config(disable=True)
    theirs = pipeline(
        prompt=PROMPT,
        negative_prompt="",
        height=64,
        width=64,
        num_frames=9,
        num_inference_steps=12,
        guidance_scale=1.5,
        max_sequence_length=12,
        generator=torch.Generator("cpu").manual_seed(5),
        output_type="pt",
    ).frames[0]
    request = Request(prompt=PROMPT, model=TINY.model_id, seed=5, numerics=Numerics.REFERENCE)
    mine = engine.run(request).frames
    expected = (theirs.permute(0, 2, 3, 1) * 255).round().to(torch.uint8).numpy()
    assert np.array_equal(mine, expected)


def test_the_autoencoder_alone_passes_its_gate(engine: Engine) -> None:
    """At least 29 dB on full frames, and the scorer right on 19 of 20 clips."""
    vae: Any = engine.instance(TINY.model_id).component("vae")
    every = (*combinations(Split.SEEN, WORDS)[::8], *combinations(Split.HELD_OUT, WORDS)[::8])
    rng = np.random.default_rng(3)
    true = np.stack([render(draw(labels, rng), 64, 9) for labels in every])
    pixels = torch.from_numpy(true).permute(0, 4, 1, 2, 3).float() / 127.5 - 1
    with torch.no_grad():
        shown = vae.module.decode(vae.module.encode(pixels).latent_dist.mode()).sample
    error = float((shown - pixels).square().mean()) / 4
    assert -10 * np.log10(error) >= 29
    clips = ((shown + 1) * 127.5).round().to(torch.uint8).permute(0, 2, 3, 4, 1).numpy()
    hits = [read(clip).hits(labels)["all"] for clip, labels in zip(clips, every, strict=True)]
    assert np.mean(hits) >= 0.95


def test_a_prompt_with_unknown_words_is_told_them_and_what_it_can_draw(engine: Engine) -> None:
    clip = engine.run(Request(prompt="A grey elephant, moving RIGHT.", model=TINY.model_id, seed=1, steps=1))
    (note,) = [note for note in clip.used.adjusted if "does not know" in note]
    assert "'grey', 'elephant'; it can draw a circle" in note
    known = engine.run(Request(prompt=PROMPT, model=TINY.model_id, seed=1, steps=1))
    assert not known.used.adjusted


def test_the_tokenizer_knows_every_word_of_the_captions() -> None:
    tokenizer = _tokenizer(FOLDER / "tokenizer", 37)
    for word in vocabulary(WORDS):
        assert tokenizer.unk_token_id not in tokenizer(word).input_ids
    longest = max(
        len(tokenizer(labels.caption(wording)).input_ids)
        for labels in combinations(Split.SEEN, WORDS)
        for wording in range(5)
    )
    assert longest <= 12


def test_all_weights_are_less_than_ten_megabytes() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 10_000_000
