"""Memory of modules is counted once, wherever and however often tensors lie in it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fv_core.weights.footprint import bytes_of, share_memory


class Holding(nn.Module):
    """Holds the tensors that it is given as buffers."""

    def __init__(self, *tensors: Tensor) -> None:
        super().__init__()
        for number, tensor in enumerate(tensors):
            self.register_buffer(f"t{number}", tensor)


def test_views_and_ties_count_once_and_as_the_whole_of_what_they_hold() -> None:
    whole = torch.zeros(10)
    assert bytes_of(Holding(whole[:2], whole[5:], whole.view(2, 5), whole)) == 40
    assert bytes_of(Holding(whole[:2])) == 40
    assert bytes_of(Holding(torch.zeros(10), torch.zeros(2))) == 48


def test_two_storages_at_one_address_are_the_larger_one() -> None:
    """As two arrays that begin at one place make them: the last one seen must not decide."""
    array = torch.zeros(10).numpy()
    small, large = torch.from_numpy(array[:2]), torch.from_numpy(array)
    assert small.untyped_storage().nbytes() == 8
    assert bytes_of(Holding(small, large)) == bytes_of(Holding(large, small)) == 40


def test_what_lies_nowhere_is_counted_as_what_lies_somewhere() -> None:
    whole = torch.zeros(10, device="meta")
    assert bytes_of(Holding(whole[:2], whole[5:], torch.zeros(3, device="meta"))) == 52
    assert bytes_of(Holding(torch.zeros(0))) == 0


def test_modules_share_tensors_or_the_memory_under_them() -> None:
    whole = torch.zeros(10)
    assert share_memory(Holding(whole[:2]), Holding(whole[5:]))
    assert not share_memory(Holding(whole), Holding(whole.clone()))
    empty, meta = torch.zeros(0), torch.zeros(2, device="meta")
    assert share_memory(Holding(empty), Holding(empty)) and share_memory(Holding(meta), Holding(meta))
    assert not share_memory(Holding(empty), Holding(torch.zeros(0)))
    assert not share_memory(Holding(meta), Holding(torch.zeros(2, device="meta")))
