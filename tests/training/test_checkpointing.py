"""Activations computed twice: the same bits where the setting does something, refused where it would do nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fv_core.errors import TrainError
from fv_core.training.config import config_of
from fv_core.training.run import train
from fv_core.training.setup import set_up


def wan(tmp_path: Path, name: str, **settings: Any) -> Path:
    """A run of three steps on the untrained Wan."""
    overrides = {f"train.{key}": value for key, value in settings.items()}
    config = tmp_path / f"{name}.toml"
    config.write_text(
        f"""
model = "wan21/micro"
weights = "seed"
method = {{name = "finetune", components = ["transformer"]}}
data = {{name = "shapes", clips = 4}}
train = {{steps = 3, batch = 2, lr = 1e-2}}
save = {{dir = "{(tmp_path / name).as_posix()}"}}
"""
    )
    return train(config, overrides=overrides).folder


def test_checkpointed_activations_change_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[object] = []
    whole = torch.utils.checkpoint.checkpoint

    def counted(*args: Any, **keywords: Any) -> Any:
        again.append(args)
        return whole(*args, **keywords)

    monkeypatch.setattr(torch.utils.checkpoint, "checkpoint", counted)
    kept = load_file(wan(tmp_path, "kept") / "checkpoints" / "00000003" / "weights.safetensors")
    assert not again
    made = wan(tmp_path, "made", checkpointing=True)
    made_again = load_file(made / "checkpoints" / "00000003" / "weights.safetensors")
    assert again, "no activation was computed again"
    assert kept.keys() == made_again.keys()
    assert all(torch.equal(value, made_again[name]) for name, value in kept.items())


@pytest.mark.parametrize(
    ("method", "named"),
    [
        ({"name": "vae"}, "vae"),
        ({"name": "finetune", "components": ["transformer", "text"]}, "text"),
    ],
)
def test_where_checkpointing_would_do_nothing_it_is_refused(
    tmp_path: Path, method: dict[str, Any], named: str
) -> None:
    config = config_of(
        {
            "model": "wan21/micro",
            "weights": "seed",
            "method": method,
            "data": {"name": "shapes", "clips": 2},
            "train": {"checkpointing": True},
            "save": {"dir": str(tmp_path / "run")},
        }
    )
    with pytest.raises(TrainError, match=rf"FV704 train\.checkpointing '{named}'"):
        set_up(config)
