"""Every document of `--json` has a schema, pinned here: what it holds may grow only together with this file."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import numpy as np
import pytest
from PIL import Image

from fv_core.cli.main import fv as root
from fv_core.loop import flow_denoise
from fv_core.loop.policies.guidance import combine

Fv = Callable[..., Any]

TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
NUMBER = {"type": "number"}
FLAG = {"type": "boolean"}


def record(**fields: Any) -> dict[str, Any]:
    """An object of exactly these fields."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def several(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def maybe(kind: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [kind, {"type": "null"}]}


def mapping(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


CODE = {"type": "string", "pattern": "^FV[0-9]{3}$"}
STATE = {"enum": ["discovered", "ready", "blocked", "conflict", "incompatible", "broken", "invalid"]}
DETAILS = record(name=TEXT, value=maybe(TEXT), rule=TEXT, legal=TEXT)
ERROR = record(code=CODE, type=TEXT, message=TEXT, hint=TEXT, details=DETAILS)
FOUND = record(code=CODE, type=TEXT, message=TEXT, hint=TEXT, details=DETAILS, place=maybe(TEXT))
PLUGIN = record(
    name=TEXT, module=TEXT, dist=TEXT, version=TEXT, location=TEXT, editable=FLAG, state=STATE,
    code={"anyOf": [CODE, {"const": ""}]}, reason=TEXT, remedy=TEXT,
    provides=several(record(kind={"enum": ["card", "interceptor"]}, id=TEXT)),
)  # fmt: skip
MODEL = record(
    id=TEXT,
    tasks=several(TEXT),
    parameters=WHOLE,
    weight_bytes=WHOLE,
    weights=TEXT,
    summary=TEXT,
    digest=TEXT,
)
EXPLAINED = record(code=CODE, title=TEXT, exit_code=WHOLE, http_status=WHOLE, type=TEXT, explanation=TEXT)
ENV = record(
    fv=TEXT, python=TEXT, platform=TEXT, versions=mapping(TEXT),
    devices=several(record(name=TEXT, hardware=TEXT, free_bytes=WHOLE, total_bytes=WHOLE)),
    threads=maybe(WHOLE), torch_error=maybe(TEXT),
    paths=several(record(name=TEXT, path=TEXT, bytes=maybe(WHOLE))),
    plugins=several(record(name=TEXT, dist=TEXT, version=TEXT, state=STATE, reason=TEXT)),
    variables=mapping(TEXT),
)  # fmt: skip
OFFERED = record(id=TEXT, summary=TEXT, **{"from": TEXT})
GATE = record(model=TEXT, gate=TEXT, state=TEXT, figure=WHOLE, of=WHOLE, counted=TEXT, detail=TEXT)
SIZE = record(width=WHOLE, height=WHOLE)
PLAIN = {"type": ["number", "string", "boolean"]}
REQUEST = record(
    model=TEXT, task=TEXT, prompt=TEXT, negative_prompt=TEXT, seed=WHOLE, size=SIZE, frames=WHOLE, fps=NUMBER,
    steps=WHOLE, guidance=NUMBER, numerics=TEXT, params=mapping(PLAIN),
    inputs=several(record(modality=TEXT, path=TEXT, sha256=TEXT)), keep=several(TEXT), adjusted=several(TEXT),
    adapters=several(record(path=TEXT, sha256=TEXT, scale=NUMBER)),
)  # fmt: skip
BOUND = record(path=TEXT, sha256=TEXT, scale=NUMBER, layers=mapping(WHOLE), alpha_stated=FLAG)
PLAN = record(
    request=REQUEST, seeds=several(WHOLE), outputs=several(TEXT), device=TEXT, dtype=TEXT, steps=WHOLE,
    weights=maybe(TEXT), weights_missing=maybe(TEXT), weight_bytes=mapping(WHOLE), working_bytes=mapping(maybe(WHOLE)),
    cache_bytes=mapping(WHOLE), peak_bytes=WHOLE, peak_bytes_offloaded=WHOLE, free_bytes=WHOLE, fits=FLAG, offload=TEXT,
    adapters=several(BOUND), adapter_bytes=WHOLE, max_batch=WHOLE, seconds=maybe(NUMBER),
)  # fmt: skip
ENVIRONMENT = record(
    device=TEXT, device_name=TEXT, instructions=TEXT, threads=WHOLE, platform=TEXT, versions=mapping(TEXT),
    processor=TEXT, settings=mapping(TEXT),
)  # fmt: skip
CLIP = record(
    path=maybe(TEXT), action=maybe(TEXT), text=maybe(TEXT), sidecar=maybe(TEXT),
    model=TEXT, card_digest=TEXT, plugin=TEXT, weights=TEXT, model_folder=TEXT, seed=WHOLE, size=SIZE,
    frames=WHOLE, fps=NUMBER, steps=WHOLE, guidance=NUMBER, sampler=TEXT, numerics=TEXT, dtype=TEXT,
    params=mapping(PLAIN), extensions=several(TEXT), environment=ENVIRONMENT, environment_hash=TEXT, seconds=NUMBER,
    adjusted=several(TEXT), adapters=several(BOUND),
)  # fmt: skip
WEIGHTS = record(
    model=TEXT, repo=TEXT, revision=maybe(TEXT), bytes=maybe(WHOLE), path=maybe(TEXT),
    presence={"enum": ["here", "partly here", "not here"]}, reason=maybe(TEXT),
)  # fmt: skip
BROKEN = record(plugin=TEXT, dist=TEXT, version=TEXT, error=ERROR)
VERDICT = record(id=TEXT, ok=FLAG, findings=several(ERROR))
SETTING = record(name=TEXT, value={"type": ["null", "boolean", "number", "string", "array"]}, origin=TEXT)

SMALL = ("--size", "16x16", "--frames", "1", "--steps", "1")

ROOT = Path(__file__).parents[2]
FIGURE = record(taps=TEXT, compared=WHOLE, max_abs_diff=maybe(NUMBER))
FIRST = record(
    tap=TEXT, step=maybe(WHOLE), element=maybe(several(WHOLE)), reason=TEXT, mine=TEXT, theirs=TEXT,
    max_abs_diff=maybe(NUMBER),
)  # fmt: skip
RUNG = {"enum": ["C0", "C1"]}
JUDGED = {"enum": ["passed", "failed"]}
MEASURED = record(
    rung=RUNG, verdict=JUDGED, tolerance=NUMBER, requests=WHOLE, figures=several(FIGURE), first=maybe(FIRST)
)
STANDING = record(rung=RUNG, certified=FLAG, path=maybe(TEXT), reasons=several(TEXT))
CERTIFICATE = record(
    rung=RUNG, verdict=JUDGED, path=TEXT, figures=several(FIGURE), tolerance=NUMBER, seal=TEXT
)
GATED = record(
    gate=TEXT, state={"enum": ["passed", "failed", "blocked"]}, figure=WHOLE, of=WHOLE, counted=TEXT, detail=TEXT
)  # fmt: skip
PROBLEM = record(file=TEXT, reason=TEXT)
CHECKED = record(plugins=several(PLUGIN), ok=FLAG, findings=several(FOUND), gates=several(GATE))

FILE = record(
    file=TEXT, kept=FLAG, told=several(TEXT), frames=maybe(WHOLE), resampled=maybe(WHOLE), fps=maybe(NUMBER),
    size=maybe(several(WHOLE)), bucket=maybe(several(WHOLE)),
)  # fmt: skip
BUCKET = record(frames=WHOLE, height=WHOLE, width=WHOLE, samples=WHOLE)
SCHEMAS: dict[str, dict[str, Any]] = {
    "generate": record(clips=several(CLIP), notices=several(TEXT)),
    "generate --dry-run": PLAN,
    "generate --from": record(clips=several(CLIP), notices=several(TEXT), differences=several(TEXT)),
    "models": record(models=several(MODEL), broken=several(BROKEN)),
    "models show": {
        "type": "object",
        "required": ["type", "model_id", "recipe"],
        "properties": {"type": {"const": "ModelCard"}},
    },
    "models show --schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
    "plugins": record(plugins=several(PLUGIN)),
    "plugins show": record(plugin=PLUGIN, findings=several(ERROR), traceback=maybe(TEXT)),
    "plugins new": record(plugin=TEXT, kind=TEXT, path=TEXT, files=several(TEXT)),
    "plugins check": CHECKED,
    "validate": record(ok=FLAG, cards=several(VERDICT)),
    "weights pull": record(model=TEXT, repo=TEXT, revision=TEXT, bytes=WHOLE, path=TEXT),
    "weights list": record(weights=several(WEIGHTS)),
    "weights verify": record(model=TEXT, ok=FLAG, problems=several(PROBLEM)),
    "weights where": record(model=TEXT, path=TEXT),
    "weights convert": record(model=TEXT, path=TEXT, missing=several(TEXT)),
    "parity check": record(model=TEXT, ok=FLAG, rungs=several(MEASURED), certified=several(STANDING)),
    "parity check --record": record(model=TEXT, path=TEXT, taps=several(TEXT)),
    "parity gate": record(ok=FLAG, models=several(record(model=TEXT, gates=several(GATED)))),
    "parity certify": record(model=TEXT, ok=FLAG, certificates=several(CERTIFICATE)),
    "train": record(run=TEXT, steps=WHOLE, figures=mapping(NUMBER)),
    "train --dry-run": record(
        parameters=mapping(mapping(WHOLE)),
        bytes=WHOLE,
        samples=several(BUCKET),
        samples_per_step=WHOLE,
        steps=WHOLE,
        epochs=NUMBER,
        first_loss=NUMBER,
        files=several(FILE),
    ),
    "train --cache-only": record(latents=WHOLE, embeds=WHOLE, found=WHOLE, notes=several(TEXT)),
    "train --list": record(methods=several(OFFERED), data=several(TEXT), rewards=several(OFFERED)),
    "export": record(format=TEXT, path=TEXT),
    "config": record(settings=several(SETTING)),
    "env": ENV,
    "explain": record(codes=several(EXPLAINED)),
    "explain CODE": EXPLAINED,
    "an error": record(error=ERROR),
    "an error after clips": record(error=ERROR, done=several(CLIP)),
}
"""What each command prints with `--json`, and with an option that makes it another document."""

RUNS: list[tuple[str, tuple[str, ...]]] = [
    ("generate", ("generate", "a cat", *SMALL)),
    ("generate --dry-run", ("generate", "a cat", "--dry-run", *SMALL)),
    ("models", ("models",)),
    ("models show", ("models", "show", "wan21/micro")),
    ("models show --schema", ("models", "show", "wan21/micro", "--schema")),
    ("plugins", ("plugins",)),
    ("plugins", ("plugins", "--check")),
    ("plugins show", ("plugins", "show", "few-steps")),
    ("plugins check", ("plugins", "check", str(ROOT / "tests/dists/few_steps"))),
    ("plugins check", ("plugins", "check", str(ROOT / "tests/dists/good"))),
    ("plugins new", ("plugins", "new", "mine")),
    ("validate", ("validate", "--all")),
    ("weights list", ("weights", "list")),
    ("parity check", ("parity", "check", "wan21/micro", "--device", "cpu")),
    ("parity check --record", ("parity", "check", "wan21/micro", "--record", "run", "--device", "cpu")),
    ("parity gate", ("parity", "gate", "wan21/micro", "--device", "cpu")),
    ("parity certify", ("parity", "certify", "wan21/micro", "--into", "ledger", "--device", "cpu")),
    ("config", ("config",)),
    ("env", ("env",)),
    ("explain", ("explain",)),
    ("explain CODE", ("explain", "FV201")),
    ("an error", ("generate", "a cat", "--steps", "0")),
    ("an error", ("models", "shwo")),
]


def check(document: Any, name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    jsonschema.validate(document, SCHEMAS[name])


@pytest.mark.usefixtures("forget", "few_gates")
@pytest.mark.parametrize(
    ("name", "arguments"), RUNS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_document_is_as_its_schema_says(
    name: str, arguments: tuple[str, ...], fv: Fv, install_dists: Callable[..., Path]
) -> None:
    install_dists("few_steps", "good", "twin_a", "twin_b")
    told = fv(*arguments, "--json")
    check(told.json, name)
    assert told.out.count("\n") == 1


def test_a_parity_check_that_fails_is_as_its_schema_says(fv: Fv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_denoise, "combine", lambda cond, uncond, scale: combine(uncond, cond, scale))
    document = fv("parity", "check", "wan21/micro", "--rung", "C1", "--device", "cpu", "--json").json
    assert document["rungs"][0]["first"] is not None
    check(document, "parity check")


def test_a_repeated_run_is_as_its_schema_says(fv: Fv, work: Path) -> None:
    fv("generate", "a cat", *SMALL, "-o", "first.npy", "--sidecar")
    check(fv("generate", "--from", "first.npy.json", "-o", "again.npy", "--json").json, "generate --from")


def test_a_failure_after_a_clip_is_as_its_schema_says(
    fv: Fv, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fv_core.media import Clip

    save = Clip.save

    def taken(clip: Clip, path: Path, **options: Any) -> Path:
        if path.name == "out-2.npy":
            path.write_bytes(b"of another process, in the meantime")
        return save(clip, path, **options)

    monkeypatch.setattr(Clip, "save", taken)
    told = fv("generate", "a cat", *SMALL, "--n", "2", "-o", "out.npy", "--json")
    check(told.json, "an error after clips")


def test_a_conversion_is_as_its_schema_says(fv: Fv, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fv_core.runtime.convert.convert", lambda card, file, folder, others: folder)
    document = fv("weights", "convert", "official.pt", "folder", "--json").json
    assert document["model"] == "wan-causal/sf-1.3b"
    check(document, "weights convert")


def test_documents_on_weights_are_as_their_schemas_say(tmp_path: Path) -> None:
    loopback = runpy.run_path(str(ROOT / "tests/weights/loopback_hub.py"))
    plugin = runpy.run_path(str(Path(__file__).with_name("test_weights.py")))["PLUGIN"]
    loopback["make_folder"](tmp_path / "repository", vocabulary=64)
    site = tmp_path / "site"
    (site / "fv_loopback-1.0.dist-info").mkdir(parents=True)
    (site / "fv_loopback.py").write_text(plugin)
    metadata = "Metadata-Version: 2.1\nName: fv-loopback\nVersion: 1.0\n"
    (site / "fv_loopback-1.0.dist-info" / "METADATA").write_text(metadata)
    (site / "fv_loopback-1.0.dist-info" / "entry_points.txt").write_text("[fv]\nloopback = fv_loopback\n")
    with loopback["Hub"](tmp_path / "repository", tmp_path / "hub") as hub:
        path = os.pathsep.join((str(site), hub.environment["PYTHONPATH"]))
        for words in ("pull --yes", "pull", "list", "verify", "where"):
            verb, *flags = words.split()
            ids = [] if verb == "list" else ["loopback/tiny"]
            command = [sys.executable, "-m", "fv_core", "weights", verb, *ids, *flags, "--json"]
            environment = {**hub.environment, "PYTHONPATH": path}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            check(json.loads(done.stdout), f"weights {verb}")


def test_documents_on_training_are_as_their_schemas_say(fv: Fv, work: Path) -> None:
    check(fv("train", "--list", "--json").json, "train --list")
    (work / "clips").mkdir()
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(work / "clips" / "one.png")
    (work / "clips" / "one.txt").write_text("a red circle")
    (work / "run.toml").write_text(
        'model = "wan21/micro"\nweights = "seed"\nmethod = {name = "finetune"}\n'
        'data = {name = "folder", path = "clips", buckets = [[1, 32, 32]], cache = "kept"}\n'
        'train = {steps = 1, batch = 1, lr = 1e-4}\nsave = {dir = "run"}\n'
    )
    check(fv("train", "run.toml", "--dry-run", "--json").json, "train --dry-run")
    check(fv("train", "run.toml", "--cache-only", "--json").json, "train --cache-only")
    check(fv("train", "run.toml", "--json").json, "train")
    check(fv("export", "run", "--format", "diffusers", "-o", "out", "--json").json, "export")


def commands(command: click.Command, path: str = "") -> Iterator[tuple[str, click.Command]]:
    yield path.strip(), command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            yield from commands(inner, f"{path} {name}")


def test_every_json_option_has_a_schema_and_every_schema_is_validated() -> None:
    offering = {
        path for path, command in commands(root) if any("--json" in param.opts for param in command.params)
    }
    assert {name for name in SCHEMAS if name in dict(commands(root))} == offering
    tried = {name for name, _ in RUNS} | {"generate --from", "an error after clips", "weights convert"}
    tried |= {name for name in SCHEMAS if name.startswith(("train", "export"))}
    assert SCHEMAS.keys() - tried == {f"weights {verb}" for verb in ("pull", "verify", "where")}
