"""`fv weights` as a process: what it prints where, its exit codes, and that it asks before it fetches."""

from __future__ import annotations

import json
import os
import pty
import re
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.weights.loopback_hub import Hub

LOOPBACK = runpy.run_path(str(Path(__file__).parents[1] / "weights" / "loopback_hub.py"))
COMMIT, REPO = LOOPBACK["COMMIT"], LOOPBACK["REPO"]
VAE = "vae/diffusion_pytorch_model.safetensors"

FV = """
import sys
from fv_core.cli.main import run
code = run(sys.argv[1:])
assert "torch" not in sys.modules
sys.exit(code)
"""

PLUGIN = f"""
from fv_core.card import CheckpointManifest, ComponentSpec, LoopSpec, ModelCard, RecipeSpec, derive
from fv_core.hookspecs import hookimpl
from fv_core.program import text_to_video
from fv_core.request import TaskType

fv_api = 1

@hookimpl
def fv_cards():
    card = ModelCard(
        model_id="loopback/tiny",
        family="wan21",
        version="1",
        components={{
            "text": ComponentSpec(load="absent:text", subfolders=("text_encoder", "tokenizer")),
            "dit": ComponentSpec(load="absent:dit", subfolders=("transformer",)),
            "vae": ComponentSpec(load="absent:vae", subfolders=("vae",)),
        }},
        loops={{
            "denoise": LoopSpec(loop="absent:A", semantics="flow/v1", binds={{"denoiser": "dit"}}),
            "decode": LoopSpec(loop="absent:B", semantics="decode/v1", binds={{"vae": "vae"}}),
        }},
        programs={{TaskType.T2V: text_to_video(encode="text", denoise="denoise", decode="decode")}},
        recipe=RecipeSpec(assumes_loop="flow/v1"),
        checkpoint=CheckpointManifest(repo="{REPO}"),
    )
    return [card, derive(card, model_id="loopback/made", checkpoint=None)]
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    LOOPBACK["make_folder"](folder, vocabulary=64)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the module path that holds an installed plugin with one card of the loopback hub's repository."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "fv_loopback.py").write_text(PLUGIN)
    installed = folder / "fv_loopback-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: fv-loopback\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[fv]\nloopback = fv_loopback\n")
    return folder


@pytest.fixture
def hub(checkpoint: Path, tmp_path: Path) -> Iterator[Hub]:
    with LOOPBACK["Hub"](checkpoint, tmp_path) as hub:
        yield hub


class Fv:
    """Starts `fv weights ...` on a hub, with the plugin installed."""

    def __init__(self, hub: Hub, site: Path) -> None:
        environment = hub.environment
        self._environment = environment | {"PYTHONPATH": f"{site}{os.pathsep}{environment['PYTHONPATH']}"}

    def start(
        self, *words: str, stdin: int = subprocess.DEVNULL, stderr: int = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", FV, "weights", *words],
            env=self._environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def __call__(self, *words: str, stdin: int = subprocess.DEVNULL) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        process = self.start(*words, stdin=stdin)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err


@pytest.fixture
def fv(hub: Hub, site: Path) -> Fv:
    return Fv(hub, site)


def test_pull_off_a_terminal_tells_the_size_and_needs_yes(fv: Fv, hub: Hub) -> None:
    code, out, err = fv("pull", "loopback/tiny")
    assert (code, out) == (2, "")
    assert f"note: {REPO} at {COMMIT}" in err
    assert "KiB to fetch" in err
    assert "error[FV300]" in err
    assert "--yes" in err
    assert hub.fetched() == []


def test_pull_prints_the_folder_alone_on_stdout(fv: Fv) -> None:
    code, out, err = fv("pull", "loopback/tiny", "--yes")
    assert code == 0, err
    assert Path(out.removesuffix("\n")).name == COMMIT
    assert fv("where", "loopback/tiny") == (0, out, "")


def test_pull_json_is_one_document(fv: Fv) -> None:
    code, out, _ = fv("pull", "loopback/tiny", "-y", "--json")
    assert code == 0
    document = json.loads(out)
    assert (document["model"], document["repo"], document["revision"]) == ("loopback/tiny", REPO, COMMIT)
    assert Path(document["path"], VAE).is_file()
    assert document["bytes"] > 0


def test_second_pull_asks_nothing_and_fetches_nothing(fv: Fv, hub: Hub) -> None:
    _, first, _ = fv("pull", "loopback/tiny", "--yes")
    hub.log.clear()
    code, out, err = fv("pull", "loopback/tiny")
    assert (code, out) == (0, first)
    assert "nothing to fetch" in err
    assert hub.fetched() == []


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 130)])
def test_pull_asks_on_a_terminal(fv: Fv, hub: Hub, answer: str, code: int) -> None:
    terminal, stdin = pty.openpty()
    os.write(terminal, f"{answer}\n".encode())
    done, out, err = fv("pull", "loopback/tiny", stdin=stdin)
    os.close(terminal)
    os.close(stdin)
    assert done == code, err
    assert re.search(rf"Fetch \d+\.\d KiB of {REPO}\? \[y/N\]", err)
    assert (out != "") == (answer == "y")
    assert (hub.fetched() != []) == (answer == "y")


def test_progress_is_drawn_on_a_terminal_alone(fv: Fv) -> None:
    terminal, stderr = pty.openpty()
    process = fv.start("pull", "loopback/tiny", "--yes", stderr=stderr)
    os.close(stderr)
    shown = b""
    with suppress(OSError):  # Linux ends a terminal with an error
        while piece := os.read(terminal, 1 << 16):
            shown += piece
    out, _ = process.communicate(timeout=60)
    os.close(terminal)
    assert process.returncode == 0
    assert Path(out.removesuffix("\n")).name == COMMIT
    assert re.search(rb"([\d.]+)/\1 KiB", shown)
    assert fv("pull", "loopback/tiny", "--yes", "--check")[2].count("\n") == 1


def test_interrupted_pull_ends_although_the_hub_hangs(fv: Fv, hub: Hub) -> None:
    hub.stall_after = 0
    process = fv.start("pull", "loopback/tiny", "--yes")
    assert hub.stalled.wait(60)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=9)  # the hub's client alone would wait 10 s for the next byte, five times
    assert process.returncode == 130
    hub.stall_after = None
    hub.resume.set()
    assert fv("pull", "loopback/tiny", "--yes")[0] == 0


def test_pull_of_a_model_without_repository_is_refused(fv: Fv) -> None:
    code, out, err = fv("pull", "loopback/made")
    assert (code, out) == (2, "")
    assert "error[FV256]: model loopback/made: has no repository" in err


def test_error_is_the_document_in_json_mode(fv: Fv) -> None:
    code, out, err = fv("where", "loopback/tiny", "--json")
    assert (code, err) == (3, "")
    assert json.loads(out)["error"]["code"] == "FV251"


def test_refusal_of_the_hub_exits_3(fv: Fv, hub: Hub) -> None:
    hub.gated = True
    code, out, err = fv("pull", "loopback/tiny", "--yes")
    assert (code, out) == (3, "")
    assert f"error[FV255]: repository {REPO}: access is gated" in err


def test_where_names_the_pull_command_until_the_weights_are_here(fv: Fv) -> None:
    code, out, err = fv("where", "loopback/tiny")
    assert (code, out) == (3, "")
    assert "error[FV251]" in err
    assert "`fv weights pull loopback/tiny`" in err
    assert fv("where", "loopback/made")[0] == 2


def test_list_tells_what_is_here(fv: Fv) -> None:
    def facts() -> dict[str, object]:
        rows: list[dict[str, object]] = json.loads(fv("list", "--json")[1])["weights"]
        assert "loopback/made" not in [row["model"] for row in rows]
        (found,) = [row for row in rows if row["model"] == "loopback/tiny"]
        return found

    def line() -> str:
        (found,) = [line for line in fv("list")[1].splitlines() if line.startswith("loopback/tiny")]
        return " ".join(found.split())

    assert line() == f"loopback/tiny {REPO} newest - not here"
    assert facts()["path"] is None
    _, folder, _ = fv("pull", "loopback/tiny", "--yes")
    assert facts()["path"] == folder.removesuffix("\n")
    assert line().startswith(f"loopback/tiny {REPO} {COMMIT} ")
    assert line().endswith(f" KiB {folder}".removesuffix("\n"))


def test_verify_names_what_is_wrong_and_pull_mends_it(fv: Fv) -> None:
    _, folder, _ = fv("pull", "loopback/tiny", "--yes")
    assert fv("verify", "loopback/tiny") == (0, "loopback/tiny: all files are whole\n", "")
    damaged = Path(folder.removesuffix("\n"), VAE)
    content = damaged.read_bytes()
    damaged.resolve().write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    code, out, err = fv("verify", "loopback/tiny")
    assert code == 1
    assert out.startswith(f"{damaged}: has other content")
    assert "fv weights pull loopback/tiny --check" in err
    code, out, _ = fv("verify", "loopback/tiny", "--json")
    assert code == 1
    assert [problem["file"] for problem in json.loads(out)["problems"]] == [str(damaged)]
    assert fv("pull", "loopback/tiny", "--check", "--yes")[0] == 0
    assert fv("verify", "loopback/tiny")[0] == 0


def test_verify_reads_the_headers_of_a_folder_of_ones_own(fv: Fv, checkpoint: Path, tmp_path: Path) -> None:
    assert fv("verify", "loopback/made", "--weights", str(checkpoint))[0] == 0
    code, out, err = fv("verify", "loopback/tiny", "--weights", str(tmp_path / "absent"))
    assert (code, out) == (3, "")
    assert f"error[FV252]: {tmp_path / 'absent'}: the folder is missing" in err
