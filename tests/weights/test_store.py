"""The weights store: locating, pulling and verifying, with the real hub client against a hub on the loopback."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from fv_core.card import CheckpointManifest, ComponentSpec, LoopSpec, ModelCard, RecipeSpec, derive
from fv_core.errors import RequestError, WeightsError
from fv_core.home import home
from fv_core.weights.store import locate, size_of, verify

if TYPE_CHECKING:
    from tests.weights.loopback_hub import Hub

T = TypeVar("T")

LOOPBACK = runpy.run_path(str(Path(__file__).with_name("loopback_hub.py")))
COMMIT, REPO = LOOPBACK["COMMIT"], LOOPBACK["REPO"]
VOCABULARY = 250_000  # the client writes in pieces of 10 MiB: only a larger file can break off half way
SHARD = "text_encoder/model.safetensors"

CARD = ModelCard(
    model_id="loopback/tiny",
    family="wan21",
    version="1",
    components={
        "text": ComponentSpec(load="absent:text", subfolders=("text_encoder", "tokenizer")),
        "dit": ComponentSpec(load="absent:dit", subfolders=("transformer",)),
        "vae": ComponentSpec(load="absent:vae", subfolders=("vae",)),
    },
    loops={"denoise": LoopSpec(loop="absent:Loop", semantics="flow/v1", binds={"denoiser": "dit"})},
    programs={},
    recipe=RecipeSpec(assumes_loop="flow/v1"),
    checkpoint=CheckpointManifest(repo=REPO),
)

PULL = """
import json, sys
from pathlib import Path
from fv_core.card import ModelCard
from fv_core.errors import FvError
from fv_core.weights.pull import pull
from fv_core.weights.pull_plan import plan_pull
card, seen = ModelCard.from_json(sys.stdin.read()), []
try:
    plan = plan_pull(card, check="check" in sys.argv)
    told = {"revision": plan.revision, "files": {f.facts.path: f.facts.bytes for f in plan.files}}
    told |= {"total": plan.bytes_total, "here": plan.bytes_here}
    if "plan" not in sys.argv:
        told |= {"folder": str(pull(card, plan, seen.append)), "seen": seen}
except FvError as error:
    told = error.to_json()
told["torch"] = "torch" in sys.modules
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    LOOPBACK["make_folder"](folder, vocabulary=VOCABULARY)
    return folder


@pytest.fixture
def hub(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with LOOPBACK["Hub"](checkpoint, tmp_path) as hub:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub.hub_cache))
        monkeypatch.setenv("FV_HOME", hub.environment["FV_HOME"])
        yield hub


def start(
    hub: Hub, *words: str, card: ModelCard = CARD, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PULL, *words],
        env=hub.environment | dict(environment or {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(card.to_json())
    process.stdin.close()
    process.stdin = None
    return process


def pull(
    hub: Hub, *words: str, card: ModelCard = CARD, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    out, err = start(hub, *words, card=card, environment=environment).communicate(timeout=120)
    assert out, err
    told: dict[str, Any] = json.loads(out)
    return told


def ranges(hub: Hub) -> list[str | None]:
    """What each request for the text encoder's bytes asked for."""
    wanted = [headers for _, path, headers in hub.log if path == f"/storage/{SHARD}"]
    return [headers.get("range") for headers in wanted]


def test_plan_tells_the_size_and_downloads_nothing(hub: Hub, checkpoint: Path) -> None:
    told = pull(hub, "plan")
    assert told["revision"] == COMMIT
    assert told["files"] == {name: (checkpoint / name).stat().st_size for name in told["files"]}
    assert told["total"] == sum(told["files"].values())
    assert told["here"] == 0
    assert hub.fetched() == []
    assert not hub.hub_cache.exists()


def test_plan_needs_what_the_components_read_and_nothing_else(hub: Hub) -> None:
    files = set(pull(hub, "plan")["files"])
    assert {"model_index.json", "tokenizer/tokenizer_config.json", "vae/config.json", SHARD} < files
    assert sum(name.startswith("transformer/") and name.endswith(".safetensors") for name in files) > 1
    others = ("README.md", "scheduler/", "text_encoder/pytorch_model.bin")
    assert [name for name in files if name.startswith(others) or ".fp16" in name] == []


def test_pull_puts_the_checkpoint_where_locate_finds_it(hub: Hub, checkpoint: Path) -> None:
    told = pull(hub)
    folder = locate(CARD, None)
    assert str(folder) == told["folder"]
    assert folder is not None
    assert {
        name: (folder / name).read_bytes() == (checkpoint / name).read_bytes() for name in told["files"]
    } == (dict.fromkeys(told["files"], True))
    assert told["seen"] == sorted(told["seen"])
    assert told["seen"][-1] == told["total"]
    assert told["torch"] is False
    assert size_of(CARD, folder) == told["total"] - (checkpoint / "model_index.json").stat().st_size
    assert verify(CARD, None) == []


def test_pull_sends_the_token_to_the_hub_but_not_to_its_storage(hub: Hub) -> None:
    hub.token = "secret"
    assert "folder" in pull(hub, environment={"HF_TOKEN": "secret"})
    asked = [path for _, path, headers in hub.log if headers.get("authorization") == "Bearer secret"]
    assert asked
    assert [path for path in asked if path.startswith("/storage/")] == []


def test_second_pull_downloads_nothing(hub: Hub) -> None:
    first = pull(hub)
    hub.log.clear()
    second = pull(hub)
    assert second["here"] == second["total"] == first["total"]
    assert second["folder"] == first["folder"]
    assert hub.fetched() == []


def test_pull_goes_on_within_the_process_when_the_connection_breaks(hub: Hub) -> None:
    hub.cuts = [21 << 20]
    assert "folder" in pull(hub)
    assert ranges(hub) == [None, f"bytes={20 << 20}-"]
    assert verify(CARD, None) == []


def test_killed_pull_is_resumed_by_the_next_one(hub: Hub) -> None:
    hub.stall_after = 21 << 20
    process = start(hub)
    assert hub.stalled.wait(60)
    received = wait_for(
        lambda: [path.stat().st_size for path in hub.hub_cache.rglob("*.incomplete")], [20 << 20]
    )
    assert received == [20 << 20]
    process.kill()
    process.communicate()
    hub.stall_after = None
    hub.resume.set()
    with pytest.raises(WeightsError) as refusal:
        locate(CARD, None)
    assert refusal.value.code == "FV251"
    hub.log.clear()

    told = pull(hub)
    assert told["here"] >= 20 << 20
    assert ranges(hub) == [f"bytes={20 << 20}-"]
    assert verify(CARD, None) == []
    assert list(hub.hub_cache.rglob("*.incomplete")) == []


def test_pull_refuses_what_is_not_the_stated_content(hub: Hub) -> None:
    hub.corrupt = True
    told = pull(hub)
    assert told["code"] == "FV255"
    assert "another content" in told["message"]
    hub.corrupt = False
    assert "folder" in pull(hub)
    assert verify(CARD, None) == []


@pytest.mark.parametrize(
    ("token", "gated", "environment", "reason"),
    [
        ("secret", False, {}, "hides it from you"),
        ("secret", False, {"HF_TOKEN": "wrong"}, "refuses the token (401)"),
        (None, True, {"HF_TOKEN": "right"}, "gated"),
        (None, False, {"HF_HUB_OFFLINE": "1"}, "offline mode"),
        (None, False, {"HF_ENDPOINT": "http://127.0.0.1:9"}, "transfer failed (ConnectError"),
    ],
)
def test_pull_tells_why_the_hub_refuses(
    hub: Hub, token: str | None, gated: bool, environment: dict[str, str], reason: str
) -> None:
    hub.token, hub.gated = token, gated
    told = pull(hub, environment=environment)
    assert told["code"] == "FV255"
    assert reason in told["message"]
    assert REPO in told["message"]


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (CheckpointManifest(repo="loopback/absent"), "does not know it"),
        (CheckpointManifest(repo=REPO, revision="f" * 40), "does not have the card's revision"),
        (CheckpointManifest(repo="no good/name/at all"), "not a legal repository id"),
    ],
)
def test_pull_tells_what_the_hub_does_not_have(hub: Hub, manifest: CheckpointManifest, reason: str) -> None:
    told = pull(hub, card=derive(CARD, checkpoint=manifest))
    assert told["code"] == "FV255"
    assert reason in told["message"]


def test_pull_refuses_a_repository_without_safetensors(hub: Hub) -> None:
    components = {"scheduler": ComponentSpec(load="absent:scheduler", subfolders=("scheduler",))}
    told = pull(hub, card=derive(CARD, components=components))
    assert told["code"] == "FV255"
    assert "folder scheduler holds no safetensors" in told["message"]


def test_plan_refuses_a_card_without_repository(hub: Hub) -> None:
    assert pull(hub, "plan", card=derive(CARD, checkpoint=None))["code"] == "FV256"


def test_pinned_revision_is_located_whatever_was_pulled_last(hub: Hub) -> None:
    pinned = derive(CARD, checkpoint={"revision": COMMIT})
    pull(hub, card=pinned)
    record = home() / "weights" / "loopback--tiny.json"
    record.unlink()
    assert locate(pinned, None) is not None
    with pytest.raises(WeightsError):
        locate(CARD, None)  # no pull recorded, and no branch in the cache


def test_branch_that_another_program_cached_is_located(hub: Hub) -> None:
    folder = Path(pull(hub)["folder"])
    (home() / "weights" / "loopback--tiny.json").unlink()
    (folder.parents[1] / "refs").mkdir()
    (folder.parents[1] / "refs" / "main").write_text(COMMIT)
    assert locate(CARD, None) == folder


def test_absent_weights_name_the_pull_command(hub: Hub) -> None:
    with pytest.raises(WeightsError) as refusal:
        locate(CARD, None)
    assert refusal.value.code == "FV251"
    assert refusal.value.entry.exit_code == 3
    assert "fv weights pull loopback/tiny" in refusal.value.remedy
    assert "--weights PATH" in refusal.value.remedy
    assert hub.log == []


def test_weights_that_are_here_in_part_name_what_is_missing(hub: Hub) -> None:
    folder = Path(pull(hub)["folder"])
    shard = next((folder / "transformer").glob("*-00001-of-*"))
    shard.unlink()
    with pytest.raises(WeightsError, match=f"only partly on this machine .*{shard.name}") as refusal:
        locate(CARD, None)
    assert refusal.value.code == "FV251"
    assert [Path(problem.file) for problem in verify(CARD, None)] == [shard]


def test_embedded_card_has_no_folder() -> None:
    assert locate(derive(CARD, checkpoint=None), None) is None


def test_explicit_folder_wins(checkpoint: Path) -> None:
    assert locate(CARD, checkpoint) == checkpoint
    assert locate(derive(CARD, checkpoint=None), checkpoint) == checkpoint


def test_explicit_folder_must_hold_every_subfolder(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="the folder is missing") as refusal:
        locate(CARD, tmp_path / "absent")
    assert refusal.value.code == "FV252"
    (tmp_path / "transformer").mkdir()
    with pytest.raises(WeightsError, match="subfolder text_encoder, which loopback/tiny reads, is missing"):
        locate(CARD, tmp_path)


@pytest.mark.parametrize("folder", [".", "absent"])
def test_what_to_do_about_a_wrong_folder_can_be_done(folder: str, tmp_path: Path) -> None:
    for card, remedy in (
        (CARD, f"`fv weights pull {CARD.model_id}`"),
        (derive(CARD, checkpoint=None), "its own"),
    ):
        with pytest.raises(WeightsError) as refusal:
            locate(card, tmp_path / folder)
        assert refusal.value.code == "FV252"
        assert remedy in refusal.value.remedy
        assert ("pull" in refusal.value.remedy) is (card.checkpoint is not None)


def test_verify_names_every_damaged_file_of_a_pull(hub: Hub) -> None:
    folder = Path(pull(hub)["folder"])
    (folder / "vae" / "config.json").unlink()
    flip(folder / SHARD)
    with (folder / "vae" / "diffusion_pytorch_model.safetensors").open("r+b") as file:
        file.truncate(100)
    (folder / "tokenizer" / "tokenizer_config.json").resolve().write_text("[]")
    reasons = {
        Path(p.file).relative_to(folder).as_posix(): p.reason.split(" ")[0:2] for p in verify(CARD, None)
    }
    assert reasons == {
        "vae/config.json": ["is", "missing"],
        SHARD: ["has", "other"],
        "vae/diffusion_pytorch_model.safetensors": ["has", "100"],
        "tokenizer/tokenizer_config.json": ["has", "other"],
    }


def test_pull_mends_what_verify_finds(hub: Hub) -> None:
    folder = Path(pull(hub)["folder"])
    with (folder / "vae" / "diffusion_pytorch_model.safetensors").open("r+b") as file:
        file.truncate(100)
    pull(hub)
    assert verify(CARD, None) == []
    flip(folder / SHARD)
    assert pull(hub)["here"] == pull(hub)["total"]  # sizes alone do not show it
    assert [Path(problem.file).name for problem in verify(CARD, None)] == ["model.safetensors"]
    hub.log.clear()
    pull(hub, "check")
    assert verify(CARD, None) == []
    assert {path for path in hub.fetched() if path.startswith("/storage/")} == {f"/storage/{SHARD}"}


def test_verify_checks_headers_where_nothing_was_recorded(checkpoint: Path, tmp_path: Path) -> None:
    assert verify(CARD, checkpoint) == []
    folder = copy(checkpoint, tmp_path / "copy")
    first, second = sorted((folder / "transformer").glob("*model-*.safetensors"))[:2]
    first.write_bytes(first.read_bytes()[:-1])
    second.write_bytes(b"")
    (folder / "vae" / "config.json").write_text("{")
    (folder / SHARD).unlink()
    found = {Path(problem.file).name: problem.reason for problem in verify(CARD, folder)}
    assert sorted(found) == sorted([first.name, second.name, "config.json", "text_encoder"])
    assert "truncated" in found[first.name]
    assert "only safetensors is read" in found["text_encoder"]


def test_verify_finds_an_index_that_disagrees_with_its_shards(checkpoint: Path, tmp_path: Path) -> None:
    folder = copy(checkpoint, tmp_path / "copy")
    index = folder / "transformer" / "diffusion_pytorch_model.safetensors.index.json"
    listing = json.loads(index.read_text())
    del listing["weight_map"]["scale_shift_table"]
    index.write_text(json.dumps(listing))
    (problem,) = verify(CARD, folder)
    assert problem.file == str(index)
    assert problem.reason == "1 tensors of the shards are not in the index: scale_shift_table"


def test_verify_refuses_a_card_without_weights() -> None:
    with pytest.raises(RequestError) as refusal:
        verify(derive(CARD, checkpoint=None), None)
    assert refusal.value.code == "FV256"


def test_damaged_record_is_named(hub: Hub) -> None:
    record = home() / "weights" / "loopback--tiny.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"type": "PullRecord", "repo": 1}')
    with pytest.raises(WeightsError, match=r"loopback--tiny\.json"):
        locate(CARD, None)


def wait_for(look: Callable[[], T], wanted: T) -> T:
    """What `look` sees once it is `wanted`, or after a minute."""
    deadline = time.monotonic() + 60
    while (seen := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    return seen


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.resolve().write_bytes(content)


def copy(source: Path, target: Path) -> Path:
    for path in source.rglob("*"):
        if path.is_file():
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())
    return target
