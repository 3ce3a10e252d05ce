"""Layers that compute sample by sample where a kernel looks at the batch: bits of a sample alone, and the controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fv_core.loop import ResolvedCall
from fv_core.loop.rowwise import rowwise, sharing
from fv_core.request import Numerics


@pytest.fixture(autouse=True)
def _same_numbers() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        yield
    torch.set_num_threads(threads)


def calls(count: int, numerics: Numerics) -> list[ResolvedCall]:
    return [ResolvedCall(rows={}, static={}, caches=(), numerics=numerics)] * count


def differs(forward: Callable[[Tensor], Tensor], batch: Tensor, samples: int, numerics: Numerics) -> bool:
    """Whether any sample's bits in a shared forward are not those that it has alone."""
    with sharing(calls(samples, numerics)):
        together = forward(batch).chunk(samples)
    alone = []
    for sample in batch.chunk(samples):
        with sharing(calls(1, numerics)):
            alone.append(forward(sample))
    return not all(torch.equal(*pair) for pair in zip(together, alone, strict=True))


LAYERS: dict[str, tuple[Callable[[], Callable[[Tensor], Tensor]], tuple[int, ...]]] = {
    "one row": (lambda: rowwise(nn.Linear(256, 32)), (256,)),
    "few rows": (lambda: rowwise(nn.Linear(256, 256)), (10, 256)),
    "long rows": (lambda: rowwise(nn.Linear(1024, 64)), (15, 1024)),
    "convolution": (lambda: rowwise(nn.Conv3d(16, 32, (1, 2, 2), stride=(1, 2, 2))), (16, 5, 8, 8)),
    "unfilled vectors": (lambda: rowwise(nn.Sequential(nn.Linear(32, 37), nn.GELU("tanh"))), (19, 32)),
    "unfilled gates": (
        lambda: (lambda layer: lambda rows: torch.sigmoid(layer(rows)))(rowwise(nn.Linear(32, 2))), (18, 32)
    ),
}  # fmt: skip
"""What makes the layer, and the shape of a sample. Each is a case that a batch changes."""


@pytest.mark.parametrize("case", LAYERS)
def test_samples_have_their_own_bits_whoever_is_beside_them(case: str) -> None:
    make, shape = LAYERS[case]
    layer = make()
    for samples in (2, 3, 4, 8, 16):
        assert not differs(layer, torch.randn(samples, *shape), samples, Numerics.EXACT), samples


@pytest.mark.parametrize("case", LAYERS)
def test_control_without_it_bits_change(case: str) -> None:
    make, shape = LAYERS[case]
    layer = make()
    batches = [torch.randn(samples, *shape) for samples in (2, 3, 4, 8, 16)]
    assert any(differs(layer, batch, len(batch), Numerics.FAST) for batch in batches)


def test_several_rows_of_a_sample_on_the_first_axis_stay_together() -> None:
    """A timestep per token comes as [samples * tokens, width]: tokens of a sample are one product, as alone."""
    layer = rowwise(nn.Linear(32, 64))
    batch = torch.randn(4 * 6, 32)
    assert not differs(layer, batch, 4, Numerics.EXACT)
    with sharing(calls(1, Numerics.EXACT)):
        alone = layer(batch[:6])
    assert torch.equal(alone, F.linear(batch[:6], layer.weight, layer.bias))


def test_samples_that_lie_channel_by_channel_are_computed_as_they_lie() -> None:
    layer = rowwise(nn.Linear(8, 32))
    by_channel = torch.randn(4, 8, 48).transpose(1, 2)
    assert not differs(layer, by_channel, 4, Numerics.EXACT)


def test_what_all_samples_share_is_computed_once() -> None:
    layer = rowwise(nn.Linear(32, 64))
    table = torch.randn(1, 20, 32)
    with sharing(calls(3, Numerics.EXACT)):
        assert torch.equal(layer(table), F.linear(table, layer.weight, layer.bias))


@pytest.mark.parametrize("numerics", list(Numerics))
def test_a_sample_alone_has_the_plain_layers_bits(numerics: Numerics) -> None:
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Conv3d(4, 8, 2), nn.Flatten(2), nn.Linear(27, 37))
    given = torch.randn(1, 4, 4, 4, 4)
    expected = plain(given)
    with sharing(calls(1, numerics)):
        assert torch.equal(rowwise(plain)(given), expected)


def test_parameters_keep_their_names_and_their_memory() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.ModuleList([nn.Conv2d(1, 1, 1), nn.Conv1d(1, 1, 1)]))
    before = {name: value.data_ptr() for name, value in module.named_parameters()}
    assert rowwise(module) is module
    assert {name: value.data_ptr() for name, value in module.named_parameters()} == before
    assert isinstance(module[0], nn.Linear)


def test_a_forward_that_fails_leaves_nothing_behind() -> None:
    layer, batch = rowwise(nn.Linear(256, 32)), torch.randn(4, 256)
    plain = layer(batch)
    with pytest.raises(RuntimeError), sharing(calls(4, Numerics.EXACT)):
        layer(torch.randn(4, 5))
    assert torch.equal(layer(batch), plain)
