"""A folder is of the card's architecture: every key that the card states agrees, and so does the parameter count."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from fv_core.card import ComponentSpec
from fv_core.errors import WeightsError
from fv_core.weights.architecture import agreed_config, check_count

FILE = Path("dit") / "config.json"
STATED: dict[str, object] = {
    "layers": 2,
    "patch": (1, 2, 2),
    "norm": "rms",
    "shift": 1.0,
    "bias": True,
    "drop": None,
}
STORED: dict[str, object] = {**STATED, "patch": [1, 2, 2], "shift": 1, "_class_name": "Dit"}


def spec(parameters: int = 0) -> ComponentSpec:
    return ComponentSpec(load="absent:x", config=STATED, parameters=parameters)


def test_equal_json_agrees_and_what_only_one_side_says_is_taken_from_it() -> None:
    assert agreed_config("dit", spec(), FILE, STORED) == STORED
    silent = {key: value for key, value in STORED.items() if key != "layers"}
    assert agreed_config("dit", spec(), FILE, silent) == {**silent, "layers": 2}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("layers", 3), ("layers", "2"), ("layers", None), ("layers", [2]), ("patch", [1, 2]), ("patch", [1, 2, 4]),
        ("norm", "layer"), ("shift", 1.5), ("shift", True), ("bias", 1), ("bias", False), ("drop", 0),
    ],
)  # fmt: skip
def test_key_that_differs_is_told_with_component_both_values_and_a_remedy(key: str, value: object) -> None:
    with pytest.raises(WeightsError) as raised:
        agreed_config("dit", spec(), FILE, {**STORED, key: value})
    error = raised.value
    assert (error.code, error.value, error.legal) == ("FV254", value, repr(STATED[key]))
    assert error.name == f"component dit: {key} of {FILE}"
    assert "derive a card" in error.remedy


def test_number_of_parameters_is_compared_where_the_card_states_it() -> None:
    module = nn.ModuleDict({"one": nn.Linear(2, 3), "two": nn.Linear(2, 3)})
    module["two"].weight = module["one"].weight
    for parameters in (0, 12):
        check_count("dit", spec(parameters), FILE, module, ())
    check_count("dit", spec(9), FILE, module, {"two.bias"})
    with pytest.raises(WeightsError, match="component dit: number of parameters") as raised:
        check_count("dit", spec(15), FILE, module, ())
    assert (raised.value.code, raised.value.value, raised.value.legal) == ("FV254", 12, "15")
