"""Bad input to `fv generate`: one sentence with the legal values, the registered exit code, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from fv_core.card import ModelCard
from fv_core.plugins import find_card
from fv_core.runtime.instance import ModelInstance, Offload

Fv = Callable[..., Any]

# Arguments after the prompt -> the code, and words that the sentence must have: the value, then what would be legal.
REFUSED = {
    "--size 65x64": ("FV302", "65x64", "multiples of 16, 16 to 512", "64x64"),
    "--size 0x0": ("FV302", "0x0", "multiples of 16"),
    "--size -64x64": ("FV302", "-64x64", "multiples of 16"),
    f"--size {'9' * 400}x64": ("FV302", "9999", "multiples of 16", "512x64"),
    "--size 64": ("FV300", "'64'", "WIDTHxHEIGHT"),
    f"--size {'9' * 9000}x64": ("FV300", "--size", "too many digits"),
    "--frames 16": ("FV303", "16", "4k+1", "up to 125"),
    "--frames 0": ("FV303", "0", "4k+1"),
    f"--frames {'9' * 400}": ("FV303", "9999", "4k+1", "125"),
    "--frames many": ("FV300", "'many'", "not a number"),
    "--steps 0": ("FV304", "0", "1 to 1000"),
    "--steps -1": ("FV304", "-1", "1 to 1000"),
    "--steps 1.5": ("FV304", "1.5", "1 to 1000"),
    "--steps 1000000000": ("FV304", "1000000000", "1 to 1000"),
    "--steps nan": ("FV304", "nan", "1 to 1000"),
    "--guidance nan": ("FV305", "nan", "1 (off) to 100"),
    "--guidance inf": ("FV305", "inf", "1 (off) to 100"),
    "--guidance -1": ("FV305", "-1.0", "1 (off) to 100"),
    "--guidance 0.5": ("FV305", "0.5", "1 (off) to 100"),
    "--seed -1": ("FV306", "-1", "0 to 18446744073709551615"),
    "--seed 18446744073709551616": ("FV306", "18446744073709551616", "0 to 18446744073709551615"),
    "--seed 18446744073709551615 --n 2": ("FV306", "18446744073709551616", "0 to 18446744073709551615"),
    "--fps 0": ("FV307", "0", "0.01 to 240"),
    "--fps 0.00001": ("FV307", "1e-05", "0.01 to 240"),
    "--fps nan": ("FV307", "nan", "0.01 to 240"),
    "--fps 1/0": ("FV300", "'1/0'", "30000/1001"),
    "--fps 60 -o x.gif": ("FV307", "60", "at most 50 frames per second"),
    "--image photo.png": ("FV308", "photo.png", "a text prompt"),
    "--set shift=0": ("FV310", "shift", "0.01 to 100"),
    "--set shift=nan": ("FV310", "nan", "0.01 to 100"),
    "--set shift=slow": ("FV310", "'slow'", "0.01 to 100"),
    "--set shft=5": ("FV310", "'shft'", "legal: shift"),
    "--set shift": ("FV300", "'shift'", "NAME=VALUE"),
    "--set shift=1 --set shift=2": ("FV300", "shift", "twice"),
    "--n 0": ("FV300", "0", "1<=x<=1000"),
    "--n abc": ("FV300", "'abc'", "not a valid whole number"),
    "--lora=": ("FV300", "--lora", "names no file", "PATH[:SCALE]"),
    "--lora :1": ("FV300", "':1'", "names no file", "PATH[:SCALE]"),
    "--lora here.mp4:abc": ("FV300", "'here.mp4:abc'", "'abc' is no scale", "PATH[:SCALE]"),
    "--lora absent:abc": ("FV322", "'absent:abc'", "is not a file or folder that exists"),
    "--max-batch 0": ("FV300", "0", "1<=x<=256"),
    "--device tpu": ("FV312", "'tpu'", "auto, cpu, cuda, cuda:N, mps"),
    "--device cuda:": ("FV312", "'cuda:'", "cuda:N"),
    "--device cpu:0": ("FV312", "'cpu:0'", "cuda:N"),
    "--dtype int8": ("FV300", "'int8'", "'bfloat16'"),
    "--numerics best": ("FV300", "'best'", "'reference', 'exact', 'fast'"),
    "--model wan21/tini": ("FV101", "'wan21/tini'", "wan21/t2v-1.3b", "Did you mean wan21/tiny"),
    "--model elsewhere/model": ("FV101", "'elsewhere/model'", "wan21/micro"),
    "-o clip.avi": ("FV315", "clip.avi", ".mp4, .webm, .gif, .webp, .png, .npy"),
    "-o absent/clip.mp4": ("FV315", "absent/clip.mp4", "folder that exists"),
    "-o folder.mp4": ("FV315", "folder.mp4", "is a folder"),
    "-o here.mp4": ("FV315", "here.mp4", "exists already", "--force"),
    "-o several.mp4 --n 2": ("FV315", "several-2.mp4", "exists already"),
    "-o noted.mp4 --sidecar": ("FV315", "noted.mp4.json", "exists already"),
    "-o . --n 2": ("FV315", "'.'", "suffix"),
    "--scale 0": ("FV315", "0", "at least 1"),
    "--scale 1.5": ("FV315", "1.5", "at least 1"),
    "--scale 1000": ("FV315", "64000x64000", "at most 16384"),
    "--force": ("FV300", "--force", "--output"),
    "--json --events": ("FV300", "--events", "--json"),
    "--frobnicate": ("FV300", "--frobnicate", "--help"),
    "--from made.json": ("FV300", "--from", "a PROMPT"),
    "--weights absent": ("FV252", "absent", "missing"),
}  # fmt: skip


@pytest.fixture
def files(work: Path) -> dict[str, bytes]:
    """What lies in the working folder before and must lie there afterwards."""
    furnish(work)
    return contents(work)


def furnish(folder: Path) -> None:
    (folder / "folder.mp4").mkdir()
    for name in ("here.mp4", "several-2.mp4", "noted.mp4.json"):
        (folder / name).write_bytes(b"kept")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: b"" if path.is_dir() else path.read_bytes() for path in folder.iterdir()}


TOKENIZER = Path(__file__).parents[2] / "plugins/fv-wan21/fv_wan21/assets/tokenizer"


def hollow(folder: Path, card: ModelCard) -> None:
    """Writes a folder of weights of which there are headers alone: files of the full length that take no space."""
    sketch = ModelInstance(
        card, device=torch.device("cpu"), dtype=torch.bfloat16, folder=None, offload=Offload.NONE
    )
    for component_id, spec in card.components.items():
        for name in spec.subfolders:
            if name == "tokenizer":
                shutil.copytree(TOKENIZER, folder / name)
            else:
                (folder / name).mkdir(parents=True)
        place, end, header = folder / spec.subfolders[0], 0, {}
        (place / "config.json").write_text(json.dumps(dict(spec.config)))
        for name, tensor in sketch.architecture(component_id).named_parameters():
            begin, end = end, end + 2 * tensor.numel()
            header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        with (place / "model.safetensors").open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)


@pytest.mark.parametrize("arguments", REFUSED, ids=lambda text: text[:40])
def test_a_bad_value_is_refused_in_one_sentence(
    fv: Fv, work: Path, files: dict[str, bytes], arguments: str
) -> None:
    code, *words = REFUSED[arguments]
    told = fv("generate", "a red circle", *arguments.split())
    json = "--json" in arguments
    text = told.json["error"]["message"] if json else told.err
    assert told.code == (3 if code.startswith("FV25") else 2)
    assert json or re.fullmatch(rf"error\[{code}\]: [^\n]+\nhint: [^\n]+\n", told.err)
    assert json or told.out == ""
    assert all(word in text for word in words), text
    assert contents(work) == files


@pytest.mark.parametrize("prompt", ["", " ", "\t\n", "\u200b\u00a0\u2028", "\ufeff"])
def test_a_blank_prompt_is_refused(fv: Fv, work: Path, prompt: str) -> None:
    told = fv("generate", prompt)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("error[FV301]: prompt ")
    assert "has no visible character" in told.err
    assert contents(work) == {}


@pytest.mark.parametrize("arguments", [("caf\udce9",), ("a cat", "--negative", "caf\udce9")])
def test_bytes_that_are_no_text_are_refused(fv: Fv, arguments: tuple[str, ...]) -> None:
    told = fv("generate", *arguments)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("error[FV301]: ")
    assert "is not text" in told.err


def test_a_missing_prompt_is_refused(fv: Fv) -> None:
    told = fv("generate")
    assert told.code == 2
    assert told.err.startswith("error[FV300]: command line: a prompt is missing")


def test_a_symbol_alone_is_a_prompt(fv: Fv) -> None:
    assert fv("generate", "\N{DROMEDARY CAMEL}", "--dry-run").code == 0


def test_nothing_is_refused_at_the_cost_of_loading_torch(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom fv_core.cli.main import run\n"
        "codes = [run(['generate', 'a red circle', *line.split()]) for line in sys.stdin.read().splitlines()]\n"
        "assert set(codes) <= {2, 3}, codes\n"
        "assert 'torch' not in sys.modules\n"
    )
    lines = [*REFUSED, "--model wan21/t2v-1.3b"]
    furnish(tmp_path)
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_weights_that_are_not_here_name_the_pull_command(fv: Fv, work: Path) -> None:
    told = fv("generate", "a cat", "--model", "wan21/t2v-1.3b")
    assert (told.code, told.out) == (3, "")
    assert told.err.startswith("error[FV251]: weights of wan21/t2v-1.3b: ")
    assert "`fv weights pull wan21/t2v-1.3b`" in told.err
    assert contents(work) == {}


def test_what_cannot_fit_in_memory_is_refused_before_a_weight_is_read(fv: Fv, work: Path) -> None:
    hollow(work / "hollow", find_card("wan21/t2v-14b"))
    before = sorted(work.rglob("*"))
    size = ("--size", "2048x2048", "--frames", "4093", "--device", "cpu")
    told = fv("generate", "a cat", "--model", "wan21/t2v-14b", "--weights", "hollow", *size)
    assert (told.code, told.out) == (4, "")
    assert re.match(
        r"error\[FV401\]: wan21/t2v-14b at 2048x2048, 4093 frames: needs [0-9]+ bytes \([0-9.]+ TiB\)",
        told.err,
    )
    assert sorted(work.rglob("*")) == before


def test_memory_that_is_allowed_bounds_a_run_and_its_plan(fv: Fv, work: Path) -> None:
    told = fv("generate", "a cat", "--device", "cpu", "--memory", "1MiB")
    assert (told.code, told.out) == (4, "")
    assert "where 1048576 bytes (1.0 MiB) are available" in told.err
    plan = fv("generate", "a cat", "--device", "cpu", "--dry-run", "--json", "--memory", "1MiB").json
    assert plan["free_bytes"] == 2**20
    (work / "fv.toml").write_text("[generate]\nmemory = 4096\n")
    assert "where 4096 bytes" in fv("generate", "a cat", "--device", "cpu").err
    assert "'--memory': '1MB' is not a size of memory" in fv("generate", "a cat", "--memory", "1MB").err


def test_offload_that_the_device_has_no_use_for_is_refused(fv: Fv) -> None:
    told = fv("generate", "a cat", "--device", "cpu", "--offload", "component")
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("error[FV312]: offload 'component'")
    assert "legal: auto, none" in told.err


@pytest.mark.parametrize("name", ["clip.npy", "clip.mp4", "clip.png"])
def test_a_disk_that_fills_up_leaves_no_file(fv: Fv, work: Path, name: str) -> None:
    with largest_file(4096):
        told = fv("generate", "a cat", "--steps", "1", "--seed", "1", "--device", "cpu", "-o", name)
    assert (told.code, told.out) == (4, "")
    assert told.err.startswith(f"error[FV403]: output '{work / name}': could not be written")
    assert contents(work) == {}


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
