"""`fv generate` from prompt to files: what is on stdout, what is named how, and what a repeated run gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fv_core.media import read_metadata, read_sidecar
from fv_core.plugins import find_card

Fv = Callable[..., Any]
SHORT = ("--device", "cpu", "--steps", "2", "--frames", "5", "--size", "32x32")
NOISE = (
    "note: wan21/micro is untrained: its clips are noise; "
    "`fv weights pull wan21/t2v-1.3b` fetches a real model, for --model wan21/t2v-1.3b\n"
)


def test_stdout_is_the_path_alone(fv: Fv, work: Path) -> None:
    told = fv("generate", "A red circle, moving!", "--seed", "7", *SHORT)
    assert told == (0, "a-red-circle-moving-7.mp4\n", NOISE)
    assert [path.name for path in work.iterdir()] == ["a-red-circle-moving-7.mp4"]
    assert read_metadata("a-red-circle-moving-7.mp4")["seed"] == 7


def test_an_automatic_name_is_numbered_and_never_taken_twice(fv: Fv, work: Path) -> None:
    (work / "cat-7.mp4").write_bytes(b"mine")
    names = [fv("generate", "cat", "--seed", "7", *SHORT).out for _ in range(2)]
    assert names == ["cat-7-2.mp4\n", "cat-7-3.mp4\n"]
    assert (work / "cat-7.mp4").read_bytes() == b"mine"


@pytest.mark.parametrize("suffix", [".mp4", ".webm", ".gif", ".webp", ".png", ".npy"])
def test_every_format_is_written_where_asked(fv: Fv, work: Path, suffix: str) -> None:
    told = fv("generate", "cat", *SHORT, "-o", f"out{suffix}")
    names = [f"out-{number:04}.png" for number in range(1, 6)] if suffix == ".png" else [f"out{suffix}"]
    assert (told.code, told.out) == (0, f"{names[0]}\n")
    assert sorted(path.name for path in work.iterdir()) == names


def test_force_replaces_the_output(fv: Fv, work: Path) -> None:
    (work / "out.npy").write_bytes(b"old")
    assert fv("generate", "cat", *SHORT, "-o", "out.npy", "--force").code == 0
    assert np.load(work / "out.npy").shape == (5, 32, 32, 3)


def test_scale_enlarges_by_whole_pixels(fv: Fv, work: Path) -> None:
    fv("generate", "cat", "--seed", "1", *SHORT, "-o", "small.npy")
    fv("generate", "cat", "--seed", "1", *SHORT, "-o", "large.npy", "--scale", "3")
    small = np.load(work / "small.npy")
    assert np.array_equal(np.load(work / "large.npy"), small.repeat(3, axis=1).repeat(3, axis=2))


def test_several_clips_have_following_seeds_and_equal_those_made_alone(fv: Fv, work: Path) -> None:
    told = fv("generate", "cat", "--seed", "7", "--n", "3", *SHORT, "-o", "out.npy", "--json")
    clips = told.json["clips"]
    assert [(clip["path"], clip["seed"]) for clip in clips] == [
        ("out-1.npy", 7),
        ("out-2.npy", 8),
        ("out-3.npy", 9),
    ]
    assert told.err == NOISE
    fv("generate", "cat", "--seed", "9", *SHORT, "-o", "alone.npy")
    assert (work / "alone.npy").read_bytes() == (work / "out-3.npy").read_bytes()
    assert (work / "out-1.npy").read_bytes() != (work / "out-2.npy").read_bytes()


def test_a_drawn_seed_is_told_and_repeats_the_clip(fv: Fv, work: Path) -> None:
    told = fv("generate", "cat", *SHORT, "-o", "drawn.npy")
    seed = told.err.removeprefix("note: seed ").partition(" was drawn")[0]
    assert fv("generate", "cat", "--seed", seed, *SHORT, "-o", "again.npy").err == NOISE
    assert (work / "drawn.npy").read_bytes() == (work / "again.npy").read_bytes()


def test_json_tells_all_that_was_used(fv: Fv) -> None:
    told = fv(
        "generate", "cat", "--seed", "7", *SHORT, "--set", "shift=5", "--negative", "fog", "--guidance", "1",
        "--fps", "30000/1001", "--numerics", "reference", "-o", "out.mp4", "--json",
    )  # fmt: skip
    unused = "the negative prompt is not used: guidance 1 is off"
    [clip] = told.json["clips"]
    assert told.json["notices"] == [unused, NOISE.removeprefix("note: ").rstrip()]
    assert told.err == f"note: {unused}\n{NOISE}"
    assert (clip["path"], clip["sidecar"], clip["adjusted"]) == ("out.mp4", None, [unused])
    assert (clip["model"], clip["card_digest"]) == ("wan21/micro", find_card("wan21/micro").digest())
    assert (clip["seed"], clip["steps"], clip["frames"], clip["guidance"]) == (7, 2, 5, 1.0)
    assert (clip["size"], clip["fps"]) == ({"width": 32, "height": 32}, 30000 / 1001)
    assert (clip["params"], clip["numerics"], clip["dtype"]) == ({"shift": 5.0}, "reference", "float32")
    assert clip["environment"]["device"] == "cpu"


def test_quiet_leaves_the_path(fv: Fv) -> None:
    assert fv("-q", "generate", "cat", *SHORT, "-o", "out.npy") == (0, "out.npy\n", "")


def test_events_are_typed_lines_with_the_result_last(fv: Fv) -> None:
    told = fv("generate", "cat", "--seed", "7", "--n", "2", *SHORT, "-o", "out.npy", "--events")
    lines = [json.loads(line) for line in told.out.splitlines()]
    kinds = [line["type"] for line in lines]
    steps = [line for line in lines if line["type"] == "request.step"]
    assert {line["schema"] for line in lines} == {1}
    assert kinds.count("request.started") == kinds.count("request.finished") == 2
    assert (kinds[0], kinds[-2], kinds[-1]) == ("request.started", "request.finished", "result")
    assert [(one["step"], one["total"]) for one in steps if one["node"] == "denoise"] == [(1, 2), (2, 2)] * 2
    assert all(one["seconds"] >= 0 and one["eta_s"] >= 0 for one in steps)
    assert len(steps) == sum(line["total_steps"] for line in lines if line["type"] == "request.started")
    frames = [line["frames"] for line in lines if line["type"] == "media.chunk"]
    assert sum(frames) == 10
    assert [clip["path"] for clip in lines[-1]["clips"]] == ["out-1.npy", "out-2.npy"]


def test_events_end_with_the_error(fv: Fv) -> None:
    told = fv("generate", "cat", "--steps", "0", "--events")
    line = json.loads(told.out)
    assert (told.code, told.err) == (2, "")
    assert (line["schema"], line["type"], line["error"]["code"]) == (1, "error", "FV304")


def test_a_clip_that_fails_leaves_those_before_it(
    fv: Fv, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fv_core.media import Clip

    save = Clip.save

    def once(clip: Clip, path: Path, **options: Any) -> Path:
        if path.name == "out-2.npy":
            path.write_bytes(b"of another process, in the meantime")
        return save(clip, path, **options)

    monkeypatch.setattr(Clip, "save", once)
    told = fv("generate", "cat", "--n", "2", *SHORT, "-o", "out.npy", "--json")
    assert told.code == 2
    assert told.json["error"]["code"] == "FV315"
    assert [clip["path"] for clip in told.json["done"]] == ["out-1.npy"]
    assert np.load(work / "out-1.npy").shape == (5, 32, 32, 3)


@pytest.fixture
def recorded(fv: Fv, work: Path) -> Path:
    """The sidecar of a run whose every value is off the defaults."""
    told = fv(
        "generate", "a naïve cat 🐫", "--negative", "fog", "--seed", "7", *SHORT, "--guidance", "3", "--fps", "12.5",
        "--set", "shift=5", "--dtype", "bfloat16", "--numerics", "reference", "-o", "first.npy", "--sidecar", "--json",
    )  # fmt: skip
    assert told.json["clips"][0]["sidecar"] == "first.npy.json"
    return work / "first.npy.json"


def test_from_repeats_the_run_bit_for_bit(fv: Fv, work: Path, recorded: Path) -> None:
    told = fv("generate", "--from", recorded, "-o", "second.npy", "--sidecar")
    assert told == (0, "second.npy\n", NOISE)
    assert (work / "second.npy").read_bytes() == (work / "first.npy").read_bytes()
    assert read_sidecar("second.npy.json").request == read_sidecar(recorded).request


def test_from_pays_no_heed_to_settings(
    fv: Fv, work: Path, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "fv.toml").write_text('[generate]\nsteps = 3\ndtype = "float32"\n')
    monkeypatch.setenv("FV_GENERATE_SEED", "8")
    told = fv("generate", "--from", recorded, "-o", "second.npy")
    assert told.code == 0
    assert (work / "second.npy").read_bytes() == (work / "first.npy").read_bytes()
    overruled = "fv.toml: generate.steps, FV_GENERATE_SEED, fv.toml: generate.dtype"
    unused = f"note: not used, as --from repeats a run as it was: {overruled}\n"
    assert told.err == unused + NOISE
    planned = fv("generate", "--from", recorded, "-o", "third.npy", "--dry-run")
    assert planned.err == unused


def test_from_enlarges_as_the_recorded_run_did(fv: Fv, work: Path) -> None:
    fv("generate", "cat", "--seed", "1", *SHORT, "-o", "large.npy", "--scale", "2", "--sidecar")
    fv("generate", "--from", "large.npy.json", "-o", "again.npy")
    fv("generate", "--from", "large.npy.json", "-o", "small.npy", "--scale", "1")
    assert (work / "again.npy").read_bytes() == (work / "large.npy").read_bytes()
    assert np.load(work / "small.npy").shape == (5, 32, 32, 3)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("a dog",), "a PROMPT"),
        (("--steps", "3"), "--steps"),
        (("--seed", "7"), "--seed"),
        (("--n", "1"), "--n"),
        (("--set", "shift=5", "--model", "wan21/micro"), "--model, --set"),
    ],
)
def test_from_excludes_what_would_change_the_run(
    fv: Fv, recorded: Path, flags: tuple[str, ...], named: str
) -> None:
    told = fv("generate", "--from", recorded, *flags)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith(
        "error[FV300]: command line: --from repeats a run as it was; it cannot be changed by "
    )
    assert f"changed by {named}\n" in told.err


def altered(sidecar: Path, **used: object) -> Path:
    """A copy of the sidecar in which facts of the run are others."""
    stored = json.loads(sidecar.read_text())
    for name, value in used.items():
        old = stored["used"][name]
        stored["used"][name] = old | value if isinstance(value, Mapping) else value
    copy = sidecar.with_name("altered.json")
    copy.write_text(json.dumps(stored))
    return copy


def test_from_names_what_differs_in_the_environment(fv: Fv, recorded: Path) -> None:
    environment = {"threads": 512, "instructions": "NEON", "device": "mps", "device_name": "M9"}
    then = altered(recorded, environment=environment, weights="seed 5")
    told = fv("generate", "--from", then, "--dtype", "float32", "--json", "-o", "out.npy")
    assert told.code == 0
    told_differences = " | ".join(told.json["differences"])
    for difference in (
        "weights seed 5 then, seed 0 now",
        "dtype bfloat16 then, float32 now",
        "device mps then, cpu now",
        "threads 512 then, ",
        "instructions NEON then, ",
    ):
        assert difference in told_differences
        assert f"warning: the frames may differ from the recorded run: {difference}" in told.err


def test_from_refuses_another_card(fv: Fv, work: Path, recorded: Path) -> None:
    told = fv("generate", "--from", altered(recorded, card_digest="ab" * 32))
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("error[FV311]: sidecar ")
    assert "ab" * 32 in told.err
    assert find_card("wan21/micro").digest() in told.err
    assert sorted(path.name for path in work.iterdir()) == ["altered.json", "first.npy", "first.npy.json"]


def test_from_refuses_what_is_no_sidecar(fv: Fv, work: Path) -> None:
    (work / "x.json").write_text("{}")
    for name in ("x.json", "absent.json"):
        told = fv("generate", "--from", name)
        assert (told.code, told.out) == (2, "")
        assert told.err.startswith(f"error[FV311]: sidecar '{name}': ")


def test_a_plugin_that_leaves_the_folder_at_import_takes_no_output_along(
    fv: Fv, work: Path, install_dists: Callable[..., Path]
) -> None:
    package = install_dists("good") / "fv_good" / "__init__.py"
    package.write_text(package.read_text().replace("fv_api = 1", "fv_api = 1\nimport os\nos.chdir('/')"))
    told = fv("generate", "cat", "--model", "good/tiny", "--seed", "1", *SHORT, "-o", "z.npy", "--sidecar")
    assert (told.code, told.out) == (0, "z.npy\n")
    assert sorted(path.name for path in work.iterdir()) == ["z.npy", "z.npy.json"]
    assert (
        "warning: plugin good (fv-good 0.3.1), when it was imported, changed the working folder to /"
        in told.err
    )


def test_outputs_stay_where_they_were_asked_while_components_move(
    fv: Fv, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fv_core import Engine

    run = Engine.run

    def moving(*arguments: Any, **options: Any) -> Any:
        monkeypatch.chdir(tmp_path)
        return run(*arguments, **options)

    monkeypatch.setattr(Engine, "run", moving)
    for given in (("-o", "z.npy"), ("-o", "../work/y.npy"), ("-o", str(work / "x.npy")), ()):
        monkeypatch.chdir(work)
        told = fv("generate", "cat", "--seed", "1", *SHORT, *given)
        assert (told.code, told.out) == (0, f"{given[1] if given else 'cat-1.mp4'}\n")
    assert sorted(path.name for path in work.iterdir()) == ["cat-1.mp4", "x.npy", "y.npy", "z.npy"]
