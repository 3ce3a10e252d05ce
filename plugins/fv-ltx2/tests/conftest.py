"""The reference: a tiny pipeline saved and run by diffusers, and the same folder as a model of fv."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import PIL.Image
import pytest
import torch
from diffusers import (
    AutoencoderKLLTX2Audio,
    AutoencoderKLLTX2Video,
    FlowMatchEulerDiscreteScheduler,
    LTX2ImageToVideoPipeline,
    LTX2LatentUpsamplePipeline,
    LTX2Pipeline,
    LTX2VideoTransformer3DModel,
)
from diffusers.pipelines.ltx2.connectors import LTX2TextConnectors
from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel
from diffusers.pipelines.ltx2.utils import DISTILLED_SIGMA_VALUES, STAGE_2_DISTILLED_SIGMA_VALUES
from diffusers.pipelines.ltx2.vocoder import LTX2VocoderWithBWE
from torch import Tensor, nn
from transformers import AutoTokenizer, Gemma3Config, Gemma3ForConditionalGeneration

import fv_ltx2
from fv_core import Clip, Engine, ModelCard, OutputSpec, Request
from fv_core.request import Modality, ModalPart, Numerics, TaskType
from fv_ltx2.architectures import TINY
from fv_ltx2.card import TINY_BASE, TINY_DISTILLED

TOKENIZER = Path(fv_ltx2.__file__).parent / "assets" / "tokenizer"
TEXT_LENGTH = 64

Outputs: TypeAlias = Mapping[str, Tensor]
"""What is compared, by the name of fv's slot."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run, stated once for fv and for the reference. `steps` 0 is the distilled model in two stages."""

    prompt: str = "a red circle moving right"
    negative: str = "blurry"
    seed: int = 7
    size: tuple[int, int] = (128, 64)
    frames: int = 9
    fps: float = 24.0
    image: bool = False
    steps: int = 0
    guidance: float = 3.0
    stg: float = 1.0
    modality: float = 3.0
    rescale: float = 0.7
    audio_guidance: float = 7.0
    audio_stg: float = 0.5
    audio_modality: float = 2.0
    audio_rescale: float = 0.4
    audio: bool = True
    dtype: str = "float32"

    @property
    def card(self) -> ModelCard:
        return TINY_BASE if self.steps else TINY_DISTILLED


def picture() -> PIL.Image.Image:
    """Neither square nor of even sides, with edges for the codec to blur."""
    blocks = np.random.default_rng(3).integers(0, 255, (7, 11, 3), dtype=np.uint8)
    return PIL.Image.fromarray(np.kron(blocks, np.ones((9, 9, 1), dtype=np.uint8)))


class Reference:
    """diffusers' pipelines on a folder that they saved; each case runs once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outputs = lru_cache(maxsize=None)(self._outputs)
        self.pipeline = lru_cache(maxsize=None)(self._pipeline)

    def _pipeline(self, dtype: str) -> tuple[Any, Any, Any]:
        run = getattr(torch, dtype)
        text = LTX2Pipeline.from_pretrained(self.folder, dtype=run)
        upsampler = LTX2LatentUpsamplerModel.from_pretrained(self.folder / "latent_upsampler", dtype=run)
        names = ("text_encoder", "connectors", "transformer", "vae", "audio_vae", "vocoder")
        for module in (upsampler, *(getattr(text, name) for name in names)):
            _align(module.eval())
        image = LTX2ImageToVideoPipeline(**text.components)
        for pipeline in (text, image):
            pipeline.set_progress_bar_config(disable=True)
        return text, image, LTX2LatentUpsamplePipeline(vae=text.vae, latent_upsampler=upsampler)

    @torch.no_grad()
    def _outputs(self, case: Case) -> Outputs:
        return self._one_stage(case) if case.steps else self._two_stages(case)

    def _two_stages(self, case: Case) -> Outputs:
        width, height = case.size
        generator = torch.Generator("cpu").manual_seed(case.seed)
        draft, audio = self._call(
            case, generator, (width // 2, height // 2), scheduler(), num_inference_steps=8,
            sigmas=DISTILLED_SIGMA_VALUES, output_type="latent", **_NEUTRAL,
        )  # fmt: skip
        upsample = self.pipeline(case.dtype)[2]
        (upsampled,) = upsample(latents=draft, output_type="latent", return_dict=False)
        found = self._last(
            case, generator, scheduler(), num_inference_steps=3, sigmas=STAGE_2_DISTILLED_SIGMA_VALUES,
            noise_scale=STAGE_2_DISTILLED_SIGMA_VALUES[0], latents=upsampled, audio_latents=audio, **_NEUTRAL,
        )  # fmt: skip
        packed = audio[0].transpose(0, 1).flatten(1, 2)
        return {"plain_draft": draft[0], "plain_draft_audio": packed, "upsampled": upsampled[0], **found}

    def _one_stage(self, case: Case) -> Outputs:
        return self._last(
            case, torch.Generator("cpu").manual_seed(case.seed), shifting(), num_inference_steps=case.steps,
            guidance_scale=case.guidance, stg_scale=case.stg, modality_scale=case.modality,
            guidance_rescale=case.rescale,
            audio_guidance_scale=case.audio_guidance if case.guidance > 1 else 1.0,
            audio_stg_scale=case.audio_stg, audio_modality_scale=case.audio_modality,
            audio_guidance_rescale=case.audio_rescale, spatio_temporal_guidance_blocks=[1],
        )  # fmt: skip

    def _last(self, case: Case, generator: torch.Generator, levels: Any, **more: Any) -> dict[str, Tensor]:
        """The stage that is decoded; its latents as the decoders see them are those of the last callback."""
        seen: list[Tensor] = []

        def keep(_pipeline: Any, _step: int, _timestep: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
            seen.append(state["latents"])
            return state

        audio: list[Tensor] = []
        hook = self.pipeline(case.dtype)[0].audio_vae.decoder.register_forward_pre_hook(
            lambda module, args: audio.append(args[0])
        )
        video, waveform = self._call(
            case, generator, case.size, levels, output_type="pt", callback_on_step_end=keep, **more
        )
        hook.remove()
        columns, rows = (side // 32 for side in case.size)
        grid = ((case.frames - 1) // 8 + 1, rows, columns)
        return {
            "latent": seen[-1][0].unflatten(0, grid).permute(3, 0, 1, 2),
            "decoded_audio": audio[0][0],
            "video": video[0].permute(0, 2, 3, 1).float(),
            "audio": waveform[0].float(),
        }

    def _call(
        self, case: Case, generator: torch.Generator, size: tuple[int, int], levels: Any, **more: Any
    ) -> tuple[Tensor, Tensor]:
        pipeline = self.pipeline(case.dtype)[int(case.image)]
        pipeline.scheduler = levels
        image = {"image": picture()} if case.image else {}
        video, audio = pipeline(
            prompt=case.prompt, negative_prompt=case.negative, width=size[0], height=size[1],
            num_frames=case.frames, frame_rate=case.fps, generator=generator, max_sequence_length=TEXT_LENGTH,
            return_dict=False, **image, **more,
        )  # fmt: skip
        return video, audio


_NEUTRAL: dict[str, Any] = {
    "guidance_scale": 1.0, "stg_scale": 0.0, "modality_scale": 1.0, "guidance_rescale": 0.0,
    "audio_guidance_scale": 1.0, "audio_stg_scale": 0.0, "audio_modality_scale": 1.0, "audio_guidance_rescale": 0.0,
    "spatio_temporal_guidance_blocks": None,
}  # fmt: skip


def scheduler() -> Any:
    """Of the distilled weights."""
    return FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=False, shift_terminal=None)


def shifting() -> Any:
    """Of the base weights, as published."""
    return FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True, base_shift=0.95, max_shift=2.05, base_image_seq_len=1024,
        max_image_seq_len=4096, shift_terminal=0.1,
    )  # fmt: skip


def _align(module: nn.Module) -> None:
    """A mapped file puts tensors at odd offsets, where one-row products round differently."""
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()


def _perturbed(module: nn.Module) -> nn.Module:
    """Moves everything off its initial value, so that norms, biases and statistics cannot be swapped unseen."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
        for name, buffer in module.named_buffers():
            if name.endswith("latents_mean"):
                buffer.add_(torch.randn_like(buffer) * 0.3)
            elif name.endswith("latents_std"):
                buffer.add_(torch.rand_like(buffer))
            elif name.endswith(("forward_basis", "mel_basis")):
                buffer.copy_(torch.rand_like(buffer) * 0.1)
    return module.eval()


def _save(folder: Path) -> None:
    vision = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "image_size": 28, "patch_size": 14, "vision_use_head": False,
    }  # fmt: skip
    gemma = Gemma3Config(
        text_config=dict(TINY.text.config), vision_config=vision, mm_tokens_per_image=4, image_token_index=9,
        boi_token_index=7, eoi_token_index=8,
    )  # fmt: skip
    classes: dict[str, Any] = {
        "connectors": LTX2TextConnectors, "transformer": LTX2VideoTransformer3DModel,
        "vae": AutoencoderKLLTX2Video, "audio_vae": AutoencoderKLLTX2Audio, "vocoder": LTX2VocoderWithBWE,
        "upsampler": LTX2LatentUpsamplerModel,
    }  # fmt: skip
    made: dict[str, Any] = {
        name: _perturbed(kind(**getattr(TINY, name).config)) for name, kind in classes.items()
    }
    made.pop("upsampler").save_pretrained(folder / "latent_upsampler")
    LTX2Pipeline(
        scheduler=scheduler(), tokenizer=AutoTokenizer.from_pretrained(TOKENIZER),
        text_encoder=_perturbed(Gemma3ForConditionalGeneration(gemma)), **made,
    ).save_pretrained(folder)  # fmt: skip


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

    def clip(self, case: Case) -> Clip:
        return self.engine(case.card, case.dtype).run(request_of(case))

    def outputs(self, case: Case) -> Outputs:
        return self.clip(case).tensors

    def forget(self) -> None:
        """Drops the engines, whose loops hold what they were built from."""
        for engine in self._engines.values():
            engine.close()
        self._engines.clear()


def request_of(case: Case) -> Request:
    """The case as a user states it."""
    names = ("stg", "modality", "rescale", "audio_guidance", "audio_stg", "audio_modality", "audio_rescale")
    drafts = () if case.steps else ("plain_draft", "plain_draft_audio", "upsampled")
    return Request(
        prompt=case.prompt, model=case.card.model_id, task=TaskType.I2V if case.image else TaskType.T2V,
        negative_prompt=case.negative if case.steps else None, seed=case.seed, size=case.size, frames=case.frames,
        fps=case.fps, steps=case.steps or None, guidance=case.guidance if case.steps else None,
        numerics=Numerics.REFERENCE, inputs=(png(picture()),) if case.image else (),
        params={"audio": case.audio, **({name: getattr(case, name) for name in names} if case.steps else {})},
        output=OutputSpec(keep=(*drafts, "latent", "video", *(("audio",) if case.audio else ()))),
    )  # fmt: skip


def png(image: PIL.Image.Image) -> ModalPart:
    """An image as an input."""
    with io.BytesIO() as file:
        image.save(file, "PNG")
        return ModalPart(modality=Modality.IMAGE, data=file.getvalue())


def differences(mine: Outputs, theirs: Outputs) -> dict[str, float]:
    """The largest absolute difference of each tensor that both have; refuses what is not alike or not finite."""
    assert {"latent", "video"} <= mine.keys() & theirs.keys()
    found = {}
    for name in mine.keys() & theirs.keys():
        one, other = mine[name], theirs[name]
        assert one.shape == other.shape, f"{name}: {one.shape} is not {other.shape}"
        assert one.dtype == other.dtype, f"{name}: {one.dtype} is not {other.dtype}"
        assert one.isfinite().all() and other.isfinite().all(), f"{name} is not finite"
        found[name] = float((one.double() - other.double()).abs().max())
    return found


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Bits depend on the number of threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("pipeline")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(20)
        _save(folder)
    return Reference(folder)


@pytest.fixture(scope="session")
def mine(reference: Reference) -> Iterator[Mine]:
    mine = Mine(reference.folder)
    yield mine
    mine.forget()


@pytest.fixture(scope="session")
def case_of() -> type[Case]:
    """`Case`, for test modules, which cannot import each other."""
    return Case


@pytest.fixture(scope="session")
def image_part() -> ModalPart:
    """The picture, likewise."""
    return png(picture())


@pytest.fixture(scope="session")
def compared(mine: Mine, reference: Reference) -> Callable[..., dict[str, float]]:
    """The largest differences between fv and the reference on the case that the keywords state."""
    return lambda **facts: differences(mine.outputs(Case(**facts)), reference.outputs(Case(**facts)))


@pytest.fixture(scope="session")
def schedulers() -> Mapping[str, Callable[[], Any]]:
    """The reference's schedulers, of the distilled and of the base weights."""
    return {"fixed": scheduler, "shifted": shifting}
