"""Parts of the components by themselves: packing, cells, fitting, sampling, spelling, and the ops on a context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_bagel.components import route, sampled
from fv_bagel.grid import Fit, cells, pack, pixels, unpack
from fv_bagel.mot import Packing, routed
from fv_core.loop import ComponentOutput, ResolvedCall

Call = Callable[..., ResolvedCall]


@pytest.fixture
def model(mine: Any) -> Any:
    return mine.engine.instance("bagel/tiny").component("model")


def test_packing_is_undone_by_unpacking() -> None:
    grid = torch.arange(3 * 4 * 6).reshape(3, 4, 6)
    tokens = pack(grid, 2)
    assert tokens.shape == (6, 12)
    assert torch.equal(unpack(tokens, 2, 2), grid)
    assert tokens[1].tolist() == [grid[c, p, 2 + q] for p in (0, 1) for q in (0, 1) for c in (0, 1, 2)]


def test_cells_are_numbered_by_the_tables_row_length() -> None:
    assert cells(2, 3, 8).tolist() == [0, 1, 2, 8, 9, 10]


def test_pixels_are_the_published_transforms_bits() -> None:
    image = torch.arange(256, dtype=torch.uint8).reshape(16, 16, 1).expand(-1, -1, 3)
    assert torch.equal(pixels(image), ((image.permute(2, 0, 1).float() / 255) - 0.5) / 0.5)


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ((1024, 1024), (980, 980)),
        ((1024, 576), (980, 546)),
        ((576, 1024), (546, 980)),
        ((512, 512), (518, 518)),
        ((980, 980), (980, 980)),
        ((100, 50), (448, 224)),
        ((2000, 100), (980, 56)),
        ((1024, 16), (980, 14)),
    ],
)
def test_images_are_seen_at_sizes_that_the_tower_takes(given: tuple[int, int], seen: tuple[int, int]) -> None:
    assert Fit(stride=14, smallest=224, largest=980).size(*given) == seen


def test_an_image_is_resized_bicubically_to_the_recorded_one(goldens: Any) -> None:
    fit = Fit(stride=14, smallest=14, largest=98)
    image, seen = goldens.first["input.image_112_u8"], goldens.first["input.image_98_u8"]
    assert torch.equal(fit.seen(image), seen)
    assert fit.seen(seen) is seen


def test_rows_go_to_their_experts_and_back_in_order() -> None:
    rows = torch.arange(10.0).reshape(5, 2)
    packing = Packing(lengths=(5,), route=route(5, rows.device), causal=False, least=1)
    for least in (1, 4):
        out = routed(lambda x: -x, lambda x: x * 10, rows, replace(packing, least=least))
        assert torch.equal(out, torch.cat([-rows[:1], rows[1:4] * 10, -rows[4:]]))
    assert torch.equal(routed(lambda x: -x, lambda x: x, rows, replace(packing, route=None)), -rows)


def test_greedy_takes_the_likeliest_and_tells_its_log_probability() -> None:
    logits = torch.tensor([0.0, 2.0, 1.0])
    token, logprob = sampled(logits, 0.0, 0.9)
    assert token.item() == 1
    assert logprob == torch.log_softmax(logits, 0)[1]


@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 0), (0.199, 0), (0.201, 1), (0.699, 1), (0.701, 3), (0.999999, 3)]
)
def test_a_uniform_number_picks_by_cumulated_probability(uniform: float, token: int) -> None:
    logits = torch.tensor([0.2, 0.5, 0.0, 0.3]).log()
    assert sampled(logits, 1.0, uniform)[0].item() == token


def test_temperature_flattens_or_sharpens() -> None:
    logits = torch.tensor([2.0, 0.0])
    hot, cold = (sampled(logits, temperature, 0.7)[1] for temperature in (100.0, 0.5))
    assert cold > hot
    assert [sampled(logits, temperature, 0.7)[0].item() for temperature in (100.0, 0.5)] == [1, 0]


def test_spelling_ends_at_the_end_mark_and_at_a_second_beginning(model: Any) -> None:
    words = model.words
    ids = words.tokenizer.encode("a cat")
    marks = words.marks
    assert words.text(torch.tensor(ids)) == "a cat"
    assert words.text(torch.tensor([*ids, marks.end])) == "a cat"
    assert words.text(torch.tensor([*ids, marks.begin, *ids])) == "a cat"
    assert words.text(torch.tensor([marks.end])) == ""


def run(model: Any, op: str, call: ResolvedCall) -> ComponentOutput:
    outputs: list[ComponentOutput] = model.forward_batch(op, [call])
    return outputs[0]


def content(output: Any) -> list[Tensor]:
    (tensors,) = output.caches
    return list(tensors)


def test_text_read_in_two_pieces_is_text_read_at_once(model: Any, call_of: Call, elsewhere: float) -> None:
    ids = model.words.block("a cat walks on the grass")
    whole = content(run(model, "text_block", call_of({"ids": ids, "position": 0}, {}, [])))
    first = content(run(model, "text_block", call_of({"ids": ids[:5], "position": 0}, {}, [])))
    both = content(run(model, "text_block", call_of({"ids": ids[5:], "position": 5}, {}, first)))
    assert len(first[0]) == 5  # what was handed in is as it was
    for one, other in zip(whole, both, strict=True):
        assert float((one - other).abs().max()) <= elsewhere


def test_a_velocity_reads_its_context_and_changes_nothing_of_it(model: Any, call_of: Call) -> None:
    ids = model.words.block("a cat")
    context = content(run(model, "text_block", call_of({"ids": ids, "position": 0}, {}, [])))
    before = [tensor.clone() for tensor in context]
    rows = {
        "tokens": torch.randn(4, 64, generator=torch.Generator().manual_seed(0)),
        "time": 0.5,
        "position": 4,
        "rows": 2,
    }
    output = run(model, "velocity", call_of(rows, {}, context))
    assert output.caches == (None,)
    assert output.output.tensors["velocity"].shape == (4, 64)
    assert all(torch.equal(one, other) for one, other in zip(context, before, strict=True))
    empty = run(model, "velocity", call_of(rows, {}, []))
    assert not torch.equal(output.output.tensors["velocity"], empty.output.tensors["velocity"])


def test_an_image_takes_one_position_and_all_of_its_tokens(model: Any, call_of: Call) -> None:
    latent = torch.randn(16, 4, 6, generator=torch.Generator().manual_seed(0))
    context = content(run(model, "latent_block", call_of({"latent": latent, "position": 0}, {}, [])))
    assert len(context) == 4  # keys and values of two layers
    assert {len(tensor) for tensor in context} == {2 * 3 + 2}
    seen = torch.randn(9, 32, generator=torch.Generator().manual_seed(0))
    context = content(run(model, "vision_block", call_of({"tokens": seen, "position": 1}, {}, context)))
    assert {len(tensor) for tensor in context} == {8 + 11}


def test_calls_never_share_a_forward(model: Any, call_of: Call) -> None:
    calls = [call_of({"text": "a"}), call_of({"text": "a"})]
    assert model.batch_key("tokenize", calls[0]) != model.batch_key("tokenize", calls[1])
