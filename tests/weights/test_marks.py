"""Changes of weights that nobody tells of are seen, as far as torch counts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fv_core.weights.marks import Marks


def module() -> Any:
    made = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    return made.requires_grad_(False).eval()


def step(net: Any) -> None:
    net[0].requires_grad_(True)
    net(torch.ones(2, 3)).sum().backward()
    torch.optim.AdamW(net[0].parameters(), lr=0.1).step()


def write(net: Any) -> None:
    with torch.no_grad():
        net[0].weight[1, 2] += 1


def replaced(net: Any) -> None:
    net[0].weight = nn.Parameter(torch.zeros(3, 3), requires_grad=False)


def other_data(net: Any) -> None:
    net[0].weight.data = torch.zeros(3, 3)


def same_memory_again(net: Any) -> None:
    """Freed and taken again: the address, and the counter, may well be what they were."""
    weight = net[0].weight
    weight.data = torch.empty(0)
    weight.data = torch.zeros(3, 3)


CHANGES: dict[str, tuple[Callable[[Any], object], set[str]]] = {
    "a write": (write, {"0.weight"}),
    "a step of an optimizer": (step, {"0.weight", "0.bias"}),
    "a state that is loaded": (
        lambda net: net[0].load_state_dict(nn.Linear(3, 3).state_dict()), {"0.weight", "0.bias"},
    ),
    "a state that is assigned": (
        lambda net: net[0].load_state_dict(nn.Linear(3, 3).state_dict(), assign=True), {"0.weight", "0.bias"},
    ),
    "another parameter": (replaced, {"0.weight"}),
    "other data": (other_data, {"0.weight"}),
    "the same memory again": (same_memory_again, {"0.weight"}),
    "a view": (lambda net: setattr(net[0].weight, "data", net[0].weight.data.T), {"0.weight"}),
    "a buffer": (lambda net: net[1].running_mean.fill_(1.0), {"1.running_mean"}),
    "one more": (lambda net: net.register_buffer("more", torch.zeros(1)), {"more"}),
    "one less": (lambda net: net[0].register_parameter("bias", None), {"0.bias"}),
}  # fmt: skip


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_is_seen_by_name(how: str) -> None:
    change, names = CHANGES[how]
    net = module()
    marks = Marks(net)
    change(net)
    assert set(marks.changed(net)) == names
    assert Marks(net).changed(net) == ()


def test_what_changes_no_weight_is_no_change() -> None:
    net = module()
    marks = Marks(net)
    net(torch.ones(2, 3))
    net.to("cpu").train().eval().requires_grad_(True)
    net.state_dict()
    assert marks.changed(net) == ()


def data(net: Any) -> None:
    net[0].weight.data.add_(1.0)


def through_numpy(net: Any) -> None:
    net[0].weight.numpy()[0, 0] = 7.0


def fused(net: Any) -> None:
    net[0].requires_grad_(True)
    net(torch.ones(2, 3)).sum().backward()
    torch.optim.SGD(net[0].parameters(), lr=0.1, fused=True).step()


@pytest.mark.parametrize("write", [data, through_numpy, fused])
def test_what_torch_does_not_count_has_to_be_told(write: Callable[[Any], None]) -> None:
    """The limits that FV408's page tells: were they gone, it would say too little."""
    net = module()
    marks, before = Marks(net), net[0].weight.detach().clone()
    write(net)
    assert not torch.equal(net[0].weight, before) and marks.changed(net) == ()


def test_tensors_of_inference_mode_are_told_apart_though_they_count_nothing() -> None:
    with torch.inference_mode():
        net = module()
    marks = Marks(net)
    replaced(net)
    assert marks.changed(net) == ("0.weight",)


def test_marks_keep_no_memory_alive() -> None:
    net = module()
    marks = Marks(net)
    weight: Tensor = net[0].weight
    (address, gone) = weight.untyped_storage()._cdata, marks._marks["0.weight"]
    assert address
    del weight
    replaced(net)
    assert gone.tensor() is None and gone.storage() is None
