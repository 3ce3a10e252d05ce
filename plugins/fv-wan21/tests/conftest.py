"""The reference: a tiny pipeline saved and run by diffusers, and the same folder as a model of fv."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanPipeline, WanTransformer3DModel
from torch import Tensor, nn
from transformers import AutoTokenizer, UMT5Config, UMT5EncoderModel

import fv_wan21
from fv_core import Clip, Engine, ModelCard, OutputSpec, Request, derive
from fv_core.request import Numerics
from fv_wan21.card import MICRO

TOKENIZER = Path(fv_wan21.__file__).parent / "assets" / "tokenizer"

Outputs: TypeAlias = Mapping[str, Tensor]
"""`latent` fp32 [C, F, H, W] and `video` fp32 [F, H, W, 3]: what is compared."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run, stated once for fv and for the reference. `boundary` not None has two experts."""

    prompt: str = "a red circle moving right"
    negative: str | None = None
    seed: int = 7
    size: tuple[int, int] = (32, 32)
    frames: int = 5
    steps: int = 6
    guidance: float = 5.0
    guidance_low: float | None = None
    shift: float = 3.0
    boundary: float | None = None
    dtype: str = "float32"


class Reference:
    """`diffusers.WanPipeline` on a folder it saved itself; each case runs once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = lru_cache(maxsize=None)(self._outputs)
        self.pipeline = lru_cache(maxsize=None)(self._pipeline)

    def _pipeline(self, dtype: str) -> Any:
        run = getattr(torch, dtype)
        types = {"transformer": run, "transformer_2": run, "text_encoder": run, "vae": torch.float32}
        pipeline = WanPipeline.from_pretrained(self.folder, dtype=types)
        pipeline.set_progress_bar_config(disable=True)
        for module in (pipeline.text_encoder, pipeline.transformer, pipeline.transformer_2, pipeline.vae):
            _align(module)
        return pipeline

    def run(self, case: Case, **more: Any) -> Any:
        """The frames as the pipeline returns them."""
        pipeline = self.pipeline(case.dtype)
        pipeline.register_to_config(boundary_ratio=case.boundary)
        pipeline.scheduler = unipc(case.shift)
        width, height = case.size
        return pipeline(
            prompt=case.prompt, negative_prompt=case.negative, height=height, width=width,
            num_frames=case.frames, num_inference_steps=case.steps, guidance_scale=case.guidance,
            guidance_scale_2=case.guidance_low, generator=torch.Generator("cpu").manual_seed(case.seed), **more,
        ).frames  # fmt: skip

    def _outputs(self, case: Case) -> Outputs:
        latents: list[Tensor] = []

        def keep(_pipeline: Any, _step: int, _timestep: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
            latents.append(state["latents"])
            return state

        video = self.run(case, output_type="np", callback_on_step_end=keep)
        return {"latent": latents[-1][0], "video": torch.from_numpy(video)[0]}


def unipc(shift: float) -> Any:
    """The pipeline's scheduler, as the published checkpoints configure it."""
    return UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, num_train_timesteps=1000, flow_shift=shift
    )


def _align(module: nn.Module) -> None:
    """A mapped file puts tensors at odd offsets, where one-row products round differently."""
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()


def _perturbed(module: nn.Module) -> nn.Module:
    """Moves every parameter off its initial value, so that norms and biases cannot be swapped unseen."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return module.eval()


CONFIGS: Mapping[str, dict[str, Any]] = {
    "text": {
        "vocab_size": 145, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4,
        "relative_attention_num_buckets": 8, "dropout_rate": 0.0, "feed_forward_proj": "gated-gelu",
    },
    "transformer": {
        "patch_size": (1, 2, 2), "num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 16,
        "out_channels": 16, "text_dim": 32, "freq_dim": 256, "ffn_dim": 64, "num_layers": 2,
        "cross_attn_norm": True, "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 32,
    },
    "vae": {
        "base_dim": 3, "z_dim": 16, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1,
        "temperal_downsample": [False, True, True],
    },
}  # fmt: skip
"""The architectures in the folder, by component of the card."""


def _save(folder: Path) -> None:
    dit = CONFIGS["transformer"]
    WanPipeline(
        tokenizer=AutoTokenizer.from_pretrained(TOKENIZER),
        text_encoder=_perturbed(UMT5EncoderModel(UMT5Config(**CONFIGS["text"]))),
        vae=_perturbed(AutoencoderKLWan(**CONFIGS["vae"])),
        scheduler=unipc(3.0), transformer=_perturbed(WanTransformer3DModel(**dit)),
        transformer_2=_perturbed(WanTransformer3DModel(**dit)), boundary_ratio=0.9,
    ).save_pretrained(folder)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Bits depend on the number of threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """The pipeline; its folder holds two experts."""
    folder = tmp_path_factory.mktemp("pipeline")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20)
        _save(folder)
    return Reference(folder)


def card_of(case: Case, cfg: str = "classic") -> ModelCard:
    """The tiny card with the facts of the saved folder: architectures, where experts part, how guidance is computed."""
    components = {
        name: replace(spec, config=CONFIGS[name], parameters=0) for name, spec in MICRO.components.items()
    }
    denoise = MICRO.loops["denoise"]
    binds = dict(denoise.binds)
    if case.boundary is not None:
        components["transformer_2"] = replace(components["transformer"], subfolders=("transformer_2",))
        binds["denoiser_low"] = "transformer_2"
    params = {"cfg": cfg, "boundary": case.boundary, "guidance_low": case.guidance_low}
    loops = {**MICRO.loops, "denoise": replace(denoise, binds=binds, params=params)}
    return derive(MICRO, model_id="wan21/folder", components=components, loops=loops)


class Mine:
    """fv on the reference's folder; an engine per card and precision."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._engines: dict[tuple[str, str], Engine] = {}

    def engine(self, card: ModelCard, dtype: str = "float32") -> Engine:
        key = (card.digest(), dtype)
        if key not in self._engines:
            self._engines[key] = Engine([card], device="cpu", dtype=dtype, weights=self.folder, reuse=False)
        return self._engines[key]

    def clip(self, case: Case, card: ModelCard | None = None) -> Clip:
        request = Request(
            prompt=case.prompt, negative_prompt=case.negative, seed=case.seed, size=case.size, frames=case.frames,
            steps=case.steps, guidance=case.guidance, params={"shift": case.shift}, numerics=Numerics.REFERENCE,
            output=OutputSpec(keep=("latent", "video")),
        )  # fmt: skip
        return self.engine(card or card_of(case), case.dtype).run(request)

    def outputs(self, case: Case, card: ModelCard | None = None) -> Outputs:
        return self.clip(case, card).tensors

    def forget(self) -> None:
        """Drops the engines, whose loops hold what they were built from."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()


def largest_difference(mine: Outputs, theirs: Outputs) -> float:
    """The largest absolute difference; refuses what is not alike or not finite."""
    assert mine.keys() == theirs.keys()
    largest = 0.0
    for name, tensor in theirs.items():
        assert mine[name].shape == tensor.shape, f"{name}: {mine[name].shape} is not {tensor.shape}"
        assert mine[name].dtype == tensor.dtype, f"{name}: {mine[name].dtype} is not {tensor.dtype}"
        assert mine[name].isfinite().all(), f"{name} of fv is not finite"
        assert tensor.isfinite().all(), f"{name} of the reference is not finite"
        largest = max(largest, float((mine[name].double() - tensor.double()).abs().max()))
    return largest


@pytest.fixture(scope="session")
def mine(reference: Reference) -> Iterator[Mine]:
    mine = Mine(reference.folder)
    yield mine
    mine.forget()


@pytest.fixture(scope="session")
def compare() -> Callable[[Outputs, Outputs], float]:
    """`largest_difference`, for test modules, which cannot import each other."""
    return largest_difference


@pytest.fixture(scope="session")
def case_of() -> type[Case]:
    """`Case`, likewise."""
    return Case


@pytest.fixture(scope="session")
def card_for() -> Callable[..., ModelCard]:
    """`card_of`, likewise."""
    return card_of


@pytest.fixture(scope="session")
def unipc_of() -> Callable[[float], Any]:
    """`unipc`, likewise."""
    return unipc


@pytest.fixture(scope="session")
def difference(mine: Mine, reference: Reference) -> Callable[..., float]:
    """The largest difference between fv and the reference on the case that the keywords state."""
    return lambda **facts: largest_difference(mine.outputs(Case(**facts)), reference.outputs(Case(**facts)))
