"""`fv weights convert`: which model it converts for, what it prints, and that nothing is left of what it refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Fv = Callable[..., Any]

SOURCE = """
from fv_core.card import CheckpointManifest, ComponentSpec, LoopSpec, ModelCard, RecipeSpec, derive
from fv_core.hookspecs import hookimpl
from fv_core.program import text_to_video
from fv_core.request import TaskType

fv_api = 1

def net(context):
    import torch
    context.config()
    with torch.device("meta"):
        module = torch.nn.Linear(2, 3)
    return Net(context.fill(module))

class Net:
    def __init__(self, module):
        self.module = module

def renamed(contents):
    return {"weight": contents["w"], "bias": contents["b"]}

@hookimpl
def fv_cards():
    made = ModelCard(
        model_id="toy/made",
        family="toy",
        version="1",
        components={
            "net": ComponentSpec(load="fv_toy:net", subfolders=("net",), parameters=9, convert="fv_toy:renamed"),
            "other": ComponentSpec(load="fv_toy:net", subfolders=("other",)),
        },
        loops={
            "denoise": LoopSpec(loop="absent:A", semantics="flow/v1", binds={"denoiser": "net"}),
            "decode": LoopSpec(loop="absent:B", semantics="decode/v1", binds={"vae": "other"}),
        },
        programs={TaskType.T2V: text_to_video(encode="other", denoise="denoise", decode="decode")},
        recipe=RecipeSpec(assumes_loop="flow/v1"),
    )
    return [made, derive(made, model_id="toy/published", checkpoint=CheckpointManifest(repo="toy/weights"))]
"""


@pytest.fixture
def toy(fake_dist: Any) -> None:
    """An installed plugin with two cards that have a converter, one of them published."""
    fake_dist("toy", SOURCE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    import torch

    path = tmp_path / "official.pt"
    torch.save({"w": torch.ones(3, 2), "b": torch.zeros(3)}, path)
    return path


def test_path_goes_to_stdout_and_what_is_missing_beside_it_is_told(
    fv: Fv, toy: None, file: Path, work: Path
) -> None:
    told = fv("weights", "convert", file, "out", "--model", "toy/made")
    assert (told.code, told.out) == (0, "out\n")
    assert "toy/made needs other beside it; --others PATH" in told.err
    assert sorted(path.name for path in (work / "out" / "net").iterdir()) == [
        "config.json",
        "diffusion_pytorch_model.safetensors",
    ]


def test_the_other_folders_are_linked(fv: Fv, toy: None, file: Path, work: Path, tmp_path: Path) -> None:
    (tmp_path / "others" / "other").mkdir(parents=True)
    told = fv(
        "weights", "convert", file, "out", "--model", "toy/made", "--others", tmp_path / "others", "--json"
    )
    assert told.code == 0
    assert told.json == {"model": "toy/made", "path": "out", "missing": []}
    assert (work / "out" / "other").resolve() == tmp_path / "others" / "other"


def test_without_a_model_it_is_the_one_that_is_published(
    fv: Fv, toy: None, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fv_core.plugins import all_cards

    cards = [card for card in all_cards() if card.family == "toy"]
    monkeypatch.setattr("fv_core.cli.weights.all_cards", lambda: cards)
    assert fv("weights", "convert", file, "out", "--json").json["model"] == "toy/published"
    monkeypatch.setattr("fv_core.cli.weights.all_cards", lambda: [*cards, *cards])
    told = fv("weights", "convert", file, "again")
    assert (told.code, told.out) == (2, "")
    assert "--model ID is needed: toy/published, toy/published" in told.err


@pytest.mark.parametrize(
    ("model", "given", "code", "status"),
    [
        ("toy/made", "absent.pt", "FV252", 3),
        ("wan21/micro", "official.pt", "FV258", 2),
        ("toy/made", "text.pt", "FV258", 2),
        ("toy/nothing", "official.pt", "FV101", 2),
    ],
)
def test_refusals_have_their_codes_and_leave_nothing(
    model: str, given: str, code: str, status: int, fv: Fv, toy: None, file: Path, work: Path
) -> None:
    (file.parent / "text.pt").write_text("no weights")
    told = fv("weights", "convert", file.parent / given, "out", "--model", model)
    assert (told.code, told.out) == (status, "")
    assert told.err.startswith(f"error[{code}]")
    assert list(work.iterdir()) == []


def test_help_loads_no_torch(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    assert fv("weights", "convert", "--help").code == 0
    assert "torch" not in sys.modules
