"""What the official code made, and fv on the same weights, prompt and noise."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from diffusers import WanTransformer3DModel
from safetensors.torch import load_file
from torch import Tensor

from fv_core import Engine, ModelCard, Request, derive
from fv_core.card import FrameRule
from fv_core.loop import CallOutput, ComponentOutput, StepResult, chunk_rollout
from fv_core.parity.taps import steps
from fv_core.request import Modality, ModalPart, Numerics, OutputSpec, TaskType
from fv_core.runtime.execution.calls import Work
from fv_core.runtime.instance import ModelInstance, Offload
from fv_core.runtime.run import RequestRun
from fv_wan_causal.card import TINY, loops
from fv_wan_causal.programs import from_text
from fv_wan_causal.text_encoder import TextEncoder
from fv_wan_causal.vae import Vae

GOLDENS = Path(__file__).parent / "goldens"
CASES: dict[str, Any] = json.loads((GOLDENS / "cases.json").read_text())["cases"]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Bits depend on the number of threads."""
    torch.set_num_threads(1)


class Goldens:
    """Tensors of the official code, latents and flows as [C, F, H, W], and the noise it ran on."""

    def __init__(self) -> None:
        self.inputs = load_file(GOLDENS / "inputs.safetensors")
        self.latents = load_file(GOLDENS / "latents.safetensors")
        self.trace = load_file(GOLDENS / "trace.safetensors")
        bits: dict[str, dict[str, str]] = json.loads((GOLDENS / "bits.json").read_text())["arithmetics"]
        self.bits = bits.get(arithmetic())

    def chunks(self, case: str) -> list[Tensor]:
        return [
            self.latents[f"{case}.chunk{i}"][0].transpose(0, 1) for i in range(len(CASES[case]["chunks"]))
        ]

    def noises(self, case: str) -> list[Tensor]:
        """In the order they are drawn: the whole clip's, then one for each renoising."""
        facts = CASES[case]
        plain = facts["chunks"] == [3, 3, 3, 3]
        infix = "" if plain else f"{case}."
        return [
            self.inputs["noise.initial"][0, : sum(facts["chunks"])],
            *(
                self.inputs[f"noise.renoise.{infix}chunk{chunk}.step{step}"]
                for chunk in range(len(facts["chunks"]))
                for step in range(3)
            ),
        ]


def arithmetic() -> str:
    """What this machine's kernels round to, by operations as torch and diffusers have them: no code of fv's own.

    Bits of the official code are the same only where this is the same.
    """
    module = WanTransformer3DModel.from_pretrained(GOLDENS / "transformer").requires_grad_(False)
    generator, whole = torch.Generator("cpu").manual_seed(0), hashlib.sha256()

    def add(tensor: Tensor) -> None:
        whole.update(tensor.contiguous().numpy().tobytes())

    for name, layer in module.named_modules():
        if isinstance(layer, torch.nn.Linear) and not name.startswith("blocks.1"):
            weight, bias = layer.weight.clone(), layer.bias.clone()
            for rows in (1, 3, 16, 48, 512):
                add(F.linear(torch.randn(rows, layer.in_features, generator=generator), weight, bias))
    numbers = torch.randn(48, 64, generator=generator)
    for made in (F.silu(numbers), F.gelu(numbers, approximate="tanh"), F.layer_norm(numbers, (64,))):
        add(made)
    for frames in (1, 3):
        clip = torch.randn(1, 16, frames, 8, 8, generator=generator)
        add(
            F.conv3d(
                clip, module.patch_embedding.weight.clone(), module.patch_embedding.bias, stride=(1, 2, 2)
            )
        )
        for keys in (16, 48, 96, 144, 192, 512):
            query, key, value = (
                torch.randn(1, 2, tokens, 16, generator=generator) for tokens in (16 * frames, keys, keys)
            )
            add(F.scaled_dot_product_attention(query, key, value))
    return whole.hexdigest()[:16]


@pytest.fixture(scope="session")
def goldens() -> Goldens:
    return Goldens()


@dataclass(kw_only=True)
class Trace:
    """A run step by step: what each forward gave, and what the window held at the end.

    `inputs[i]` is the chunk that `flows[i]` was computed from; `x0s[i]` is None where the step commits.
    """

    chunks: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    flows: list[Tensor] = field(default_factory=list)
    x0s: list[Tensor | None] = field(default_factory=list)
    timesteps: list[float] = field(default_factory=list)
    window: list[Tensor] = field(default_factory=list)

    def look(self, run: RequestRun, work: Work, result: StepResult) -> None:
        (call,) = work.plan.calls
        if call.op not in ("velocity", "commit"):
            return
        prediction = run.loop.predict(run.state, result)
        self.inputs.append(run.state.latent)
        self.timesteps.append(float(call.rows["timestep"]))  # type: ignore[arg-type]
        self.flows.append(prediction.velocity)
        self.x0s.append(prediction.x0 if call.op == "velocity" else None)
        if call.op == "commit":
            self.window = [part for part in run.scope.read(result.caches[0][0]) if isinstance(part, Tensor)]
            self.chunks.append(run.state.latent)


class Official:
    """fv's engine on the official weights, with the official prompt embeddings, given latents and noise."""

    def __init__(self, folder: Path, goldens: Goldens) -> None:
        self._folder = folder
        self._goldens = goldens

    def card(self, case: str) -> ModelCard:
        facts = CASES[case]
        transformer = TINY.components["transformer"]
        config = {**transformer.config, "num_layers": 2}
        components = {
            **TINY.components,
            "transformer": replace(transformer, config=config, parameters=48_032),
        }
        programs = dict(TINY.programs)
        if facts["independent_first_frame"]:
            programs[TaskType.T2V] = from_text("rollout_frame")
        return derive(
            TINY,
            model_id="wan-causal/official",
            components=components,
            programs=programs,
            loops=loops(facts["window"], facts["sink"]),
            limits={"frames": FrameRule(multiple=4, largest=249)},
        )

    def run(self, case: str, patch: pytest.MonkeyPatch) -> Trace:
        facts, trace = CASES[case], Trace()
        self._put_in(case, patch)
        latent_frames = sum(facts["chunks"]) + facts["prefill_frames"]
        extends = bool(facts["prefill_frames"])
        request = Request(
            prompt="the official embeddings stand in for it",
            task=TaskType.V2V if extends else TaskType.T2V,
            inputs=(ModalPart(modality=Modality.VIDEO, data=_probe()),) if extends else (),
            size=(64, 64),
            frames=4 * latent_frames - 3,
            seed=0,
            numerics=Numerics.REFERENCE,
        )
        engine = Engine([self.card(case)], device="cpu", weights=self._folder, reuse=False)
        with engine, closing(engine.start(request)) as job:
            for _ in steps(job, trace.look):
                pass
        return trace

    def _put_in(self, case: str, patch: pytest.MonkeyPatch) -> None:
        """The prompt's embeddings, the given latents, and a stream whose numbers are the stored noises."""
        inputs, noises = self._goldens.inputs, self._goldens.noises(case)
        given = inputs["initial_latent.extend"][0].transpose(0, 1)

        def draw(state: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
            noise = noises[int(state)]
            assert noise.shape == shape
            return noise, state + 1

        patch.setattr(chunk_rollout, "seed_state", lambda seed: torch.zeros((), dtype=torch.uint8))
        patch.setattr(chunk_rollout, "torch_normal", draw)
        patch.setattr(TextEncoder, "forward_batch", _answers("embeds", inputs["text_embeds"][0]))
        encode = _answers("latent", given)
        patch.setattr(Vae, "_encode", lambda self, call: encode(self, "encode", [call])[0])


def _answers(name: str, tensor: Tensor) -> Callable[..., list[ComponentOutput]]:
    return lambda self, op, calls: [ComponentOutput(output=CallOutput(tensors={name: tensor})) for _ in calls]


@cache
def _probe() -> bytes:
    import fv_wan_causal

    return (Path(fv_wan_causal.__file__).parent / "assets" / "probe.mp4").read_bytes()


def saved(folder: Path, *names: str) -> None:
    """Saves components of the tiny card as diffusers and transformers lay them out."""
    import fv_wan_causal

    instance = ModelInstance(
        TINY, device=torch.device("cpu"), dtype=torch.float32, folder=None, offload=Offload.NONE
    )
    for name in names:
        module: Any = instance.component(name).module
        path = folder / TINY.components[name].subfolders[0]
        module.save_pretrained(path)
        config = json.loads(
            (path / "config.json").read_text()
        )  # of UMT5 the class writes one value as it is not
        (path / "config.json").write_text(json.dumps({**config, **TINY.components[name].config}))
    shutil.copytree(Path(fv_wan_causal.__file__).parent / "assets" / "tokenizer", folder / "tokenizer")


@pytest.fixture(scope="session")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text encoder, its tokenizer and an autoencoder, and no transformer."""
    folder = tmp_path_factory.mktemp("others")
    saved(folder, "text", "vae")
    return folder


@pytest.fixture(scope="session")
def folder(others: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with the official weights under diffusers' names."""
    folder = tmp_path_factory.mktemp("official") / "weights"
    shutil.copytree(others, folder)
    shutil.copytree(GOLDENS / "transformer", folder / "transformer")
    return folder


@pytest.fixture(scope="session")
def official(folder: Path, goldens: Goldens) -> Official:
    return Official(folder, goldens)


@pytest.fixture(scope="session")
def traces(official: Official) -> Callable[[str], Trace]:
    """fv's run of a case, made once."""

    @cache
    def trace(case: str) -> Trace:
        with pytest.MonkeyPatch.context() as patch:
            return official.run(case, patch)

    return trace


@pytest.fixture(scope="session")
def cases() -> Mapping[str, Any]:
    return CASES


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine([TINY], device="cpu", reuse=False) as made:
        yield made


@pytest.fixture
def ask() -> Callable[..., Request]:
    """A small request to the tiny card; keywords replace its fields. Latent and video are kept for comparison."""

    def request(**fields: Any) -> Request:
        small: dict[str, Any] = {
            "prompt": "a red circle", "seed": 1, "size": (32, 32), "frames": 33,
            "output": OutputSpec(keep=("latent", "video")),
        }  # fmt: skip
        return Request(**{**small, **fields})

    return request
