"""Methods and rewards of plugins: a training by one of somebody else's, resumed to the bit, and what is refused."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fv_core.cli.main import run as fv
from fv_core.errors import FvError, PluginError, TrainError
from fv_core.extend import RewardSpec, TrainingMethodSpec
from fv_core.plugins import default_registry, find_card, registry
from fv_core.training import offered
from fv_core.training.run import train
from fv_core.training.runlog import read_metrics

METHOD = Path(__file__).with_name("third_party.py")
PLUGIN = """
from fv_core import hookimpl
from fv_core.extend import RewardSpec, TrainingMethodSpec
fv_api = 1

@hookimpl
def fv_training_methods():
    spec = TrainingMethodSpec(
        id="theirs/absolute", loops=("flow",), roles=("student",), factory="theirs_method:Absolute",
        summary="learns the data and not the velocity",
    )
    return [spec]

@hookimpl
def fv_rewards():
    return [RewardSpec(id="theirs/bright", artifacts=("video",), factory="fv_theirs:Bright", summary="light")]

class Bright:
    def score(self, frames, prompt):
        if not prompt:
            raise ValueError("an empty prompt")
        return {"light": float(frames.mean()) / 255}
"""
CONFIG = """
model = "wan21/micro"
weights = "seed"
[method]
name = "theirs/absolute"
low = 0.2
[data]
name = "shapes"
clips = 4
[train]
steps = 4
batch = 2
lr = 1e-3
[validate]
every = 2
prompts = ["a red circle moving left on black", "a blue square"]
rewards = ["shapes", "theirs/bright"]
size = [32, 32]
frames = 5
steps = 2
[save]
dir = "{run}"
every = 2
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes the distribution `fv-theirs`, whose package has this source, an installed one."""
    site = tmp_path / "site"
    info = site / "fv_theirs-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fv-theirs\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[fv]\ntheirs = fv_theirs\n")
    (site / "theirs_method.py").write_text(METHOD.read_text())
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("FV_STRICT_PLUGINS", "0")

    def write(source: str) -> None:
        (site / "fv_theirs.py").write_text(source)
        registry.default_registry.cache_clear()

    yield write
    for module in ("fv_theirs", "theirs_method"):
        sys.modules.pop(module, None)
    monkeypatch.undo()
    registry.default_registry.cache_clear()


def written(tmp_path: Path, run: str, text: str = CONFIG) -> Path:
    path = tmp_path / f"{run}.toml"
    path.write_text(text.replace("{run}", (tmp_path / run).as_posix()))
    return path


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "transformer" / "diffusion_pytorch_model.safetensors")


def test_the_method_is_about_sixty_lines() -> None:
    code = [line for line in METHOD.read_text().splitlines() if line.strip()]
    assert len(code) <= 65


def test_a_third_partys_method_trains_and_resumes_to_the_bit(
    install: Callable[[str], None], tmp_path: Path
) -> None:
    install(PLUGIN)
    torch.set_num_threads(1)
    straight = train(written(tmp_path, "straight")).folder
    train(written(tmp_path, "halved"), overrides={"save.keep": 9})
    halved = tmp_path / "halved"
    for file in ("model", "checkpoints/00000004"):  # as a run that was killed after its third step
        for one in sorted((halved / file).rglob("*"), reverse=True):
            one.rmdir() if one.is_dir() else one.unlink()
        (halved / file).rmdir()
    train(written(tmp_path, "halved"), overrides={"save.keep": 9}, resume="latest")
    whole, resumed = weights(straight), weights(halved)
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    lines = read_metrics(straight)
    assert len(lines) == 4 and all(0.2 <= float(line["level"]) < 1 and line["loss"] for line in lines)


def test_validation_is_scored_by_the_rewards_that_are_named(
    install: Callable[[str], None], tmp_path: Path
) -> None:
    install(PLUGIN)
    told: list[str] = []
    run = train(written(tmp_path, "scored"), note=told.append).folder
    assert [line.partition(":")[0] for line in told if "shapes.all" in line] == ["step 2", "step 4"]
    scores = json.loads((run / "samples" / "00000004" / "scores.json").read_text())
    assert [set(one) for one in scores] == [{"prompt", "shapes", "theirs/bright"}] * 2
    assert set(scores[0]["shapes"]) == {"shape", "colour", "direction", "background", "all"}
    assert set(scores[1]["shapes"]) == {"shape", "colour", "all"}
    assert 0 <= scores[0]["theirs/bright"]["light"] <= 1


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ('if frames.any(): raise KeyError("lost"); return {}', "KeyError"),
        ('return {"light": float("nan") if frames.any() else 0.0}', "finite numbers by name"),
        ("return 1 if frames.any() else {}", "finite numbers by name"),
    ],
)
def test_a_reward_that_fails_is_told_and_the_training_goes_on(
    install: Callable[[str], None], tmp_path: Path, says: str, told: str
) -> None:
    body = says.replace("; return", "\n        return")
    install(PLUGIN.replace('return {"light": float(frames.mean()) / 255}', body))
    notes: list[str] = []
    run = train(written(tmp_path, "run"), note=notes.append).folder
    assert len(read_metrics(run)) == 4 and (run / "model").is_dir()
    assert sum("reward theirs/bright could not judge" in note and told in note for note in notes) == 4
    scores = json.loads((run / "samples" / "00000004" / "scores.json").read_text())
    assert [set(one) for one in scores] == [{"prompt", "shapes"}] * 2


@pytest.mark.parametrize("says", ['raise KeyError("lost")', "return None"])
def test_a_reward_that_always_fails_is_refused_before_the_first_step(
    install: Callable[[str], None], tmp_path: Path, says: str
) -> None:
    install(PLUGIN.replace('return {"light": float(frames.mean()) / 255}', says))
    with pytest.raises(FvError, match="reward theirs/bright") as refused:
        train(written(tmp_path, "refused"))
    assert refused.value.code == "FV502" and not (tmp_path / "refused").exists()


def test_the_example_of_the_docs_is_sound() -> None:
    page = (METHOD.parents[2] / "docs" / "training.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    specs = [*names["fv_training_methods"](), *names["fv_rewards"]()]
    assert [type(spec) for spec in specs] == [TrainingMethodSpec, RewardSpec]
    assert not [fault for spec in specs for fault in spec.faults()]


def test_all_are_listed_with_where_they_come_from(
    install: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    install(PLUGIN)
    assert fv(["train", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:3] == ["method", "theirs/absolute", "fv-theirs"] for line in lines)
    assert any(line.split()[:4] == ["method", "finetune", "fv-core", "0.1.0"] for line in lines)
    assert any(line.split()[:3] == ["reward", "theirs/bright", "fv-theirs"] for line in lines)
    offers = [(one.kind, one.id) for one in default_registry().load("theirs").record.provides]
    assert offers == [("training method", "theirs/absolute"), ("reward", "theirs/bright")]


def test_listing_loads_no_class(install: Callable[[str], None]) -> None:
    install(PLUGIN)
    assert "theirs/absolute" in [one.id for one in offered.methods()]
    assert "theirs_method" not in sys.modules


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('id="theirs/absolute"', 'id="absolute"'), "outside the namespace theirs/"),
        (("return [spec]", "return [spec, spec]"), "appears twice"),
        (('loops=("flow",)', "loops=()"), "names no loops"),
        (('factory="theirs_method:Absolute"', 'factory="theirs_method"'), "is not module:attr"),
        (("return [RewardSpec", "return [1, RewardSpec"), "returned a int, expected RewardSpec"),
        (("return [spec]", "raise KeyError"), "FV117"),
    ],
)
def test_a_wrong_record_keeps_its_plugin_out_and_no_other(
    install: Callable[[str], None], change: tuple[str, str], told: str
) -> None:
    install(PLUGIN.replace(*change))
    assert [one.id for one in offered.methods()] == ["finetune", "vae"]
    with pytest.raises(FvError) as refused:
        offered.find_method("theirs/absolute")
    assert isinstance(refused.value, PluginError) and told in f"{refused.value.code} {refused.value}"
    assert offered.find_method("finetune").id == "finetune"


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        (('"theirs/absolute"', '"finetun"'), "FV701", "did you mean finetune"),
        (('"theirs/absolute"', '"theirs/other"'), "FV701", "theirs/absolute"),
        (('"theirs/bright"', '"sharp"'), "FV701", "is no reward"),
        (('"a blue square"', '"a cat"'), "FV701", "cannot be judged by shapes"),
        (("low = 0.2", "low = 2"), "FV701", "is not in"),
    ],
)
def test_what_there_is_not_is_refused_before_the_first_step(
    install: Callable[[str], None], tmp_path: Path, change: tuple[str, str], code: str, told: str
) -> None:
    install(PLUGIN)
    with pytest.raises(TrainError, match=told) as refused:
        train(written(tmp_path, "refused", CONFIG.replace(*change)))
    assert refused.value.code == code
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('loops=("flow",)', 'loops=("ar",)'), "of which wan21/micro has none"),
        (('roles=("student",)', 'roles=("critic",)'), "not those that it is offered with"),
    ],
)
def test_a_method_keeps_to_what_it_is_offered_with(
    install: Callable[[str], None], tmp_path: Path, change: tuple[str, str], told: str
) -> None:
    install(PLUGIN.replace(*change))
    with pytest.raises(TrainError, match=told) as refused:
        train(written(tmp_path, "refused"))
    assert refused.value.code == "FV704"


def test_fvs_own_keep_the_form_that_is_asked_of_others() -> None:
    assert {type(one) for one in (*offered.METHODS.values(), *offered.REWARDS.values())} == {
        TrainingMethodSpec,
        RewardSpec,
    }
    for name in offered.METHODS:
        offered.check_loops(offered.METHODS[name], find_card("wan21/micro"))


def test_the_reward_shapes_scores_what_a_prompt_names() -> None:
    (reward,) = offered.made_rewards(["shapes"], []).values()
    black = np.zeros((9, 64, 64, 3), np.uint8)
    assert reward.score(black, "on a black background") == {"background": 1.0, "all": 1.0}
    assert reward.score(black, "a turquoise BALL") == {"shape": 0.0, "colour": 0.0, "all": 0.0}
    with pytest.raises(ValueError, match="names no shape"):
        reward.score(black, "an elephant")
