"""The references: a tiny pipeline saved and run by diffusers, a reasoner of transformers, and the folder as a model."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
import torch
from diffusers import (
    AutoencoderKLWan,
    Cosmos3AVAEAudioTokenizer,
    Cosmos3OmniPipeline,
    Cosmos3OmniTransformer,
    CosmosActionCondition,
    UniPCMultistepScheduler,
)
from PIL import Image
from torch import Tensor, nn
from transformers import AutoTokenizer

import fv_cosmos3
from fv_core import Clip, Engine, OutputSpec, Request, derive
from fv_core.media.video import encode_mp4
from fv_core.request import Modality, ModalPart, Numerics, TaskType
from fv_core.runtime.gain import Always
from fv_cosmos3.card import TINY
from fv_cosmos3.reasoner import tied_reasoner

TOKENIZER = Path(fv_cosmos3.__file__).parent / "assets" / "tokenizer"
FOLDER = derive(TINY, model_id="cosmos3/folder")

Outputs: TypeAlias = Mapping[str, Tensor]
"""`latent`, and `video`, `sound`, `action` where the task has them: what is compared."""

SHOWN = {
    TaskType.INVERSE_DYNAMICS: ("latent", "action"),
    TaskType.POLICY: ("latent", "video", "action"),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One generation, stated once for fv and for the pipeline."""

    task: TaskType = TaskType.T2V
    prompt: str = "a red circle moving right"
    negative: str | None = "grey, still"
    seed: int = 7
    size: tuple[int, int] | None = (32, 32)
    frames: int = 9
    fps: float = 8.0
    steps: int = 4
    guidance: float = 6.0
    image: npt.NDArray[np.uint8] | None = None
    video: npt.NDArray[np.uint8] | None = None
    action: npt.NDArray[np.float32] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    @property
    def param(self) -> Mapping[str, Any]:
        return {name: TINY.param_default(name) for name in TINY.params} | dict(self.params)

    def request(self, **more: Any) -> Request:
        keep = SHOWN.get(self.task, ("latent", "video"))
        if self.param["audio"]:
            keep += ("audio", "sound_latent")
        frames = {} if self.task is TaskType.T2I else {"frames": self.frames}
        asked: dict[str, Any] = {
            "task": self.task, "prompt": self.prompt, "negative_prompt": self.negative, "seed": self.seed,
            "size": self.size, "fps": self.fps, "steps": self.steps, "guidance": self.guidance,
            "params": self.params, "numerics": Numerics.REFERENCE, "inputs": self._inputs(),
            "output": OutputSpec(keep=keep),
        }  # fmt: skip
        return Request(**{**asked, **frames, **more})

    def _inputs(self) -> tuple[ModalPart, ...]:
        parts = []
        if self.image is not None:
            parts.append(ModalPart(modality=Modality.IMAGE, data=png(self.image)))
        if self.video is not None:
            parts.append(ModalPart(modality=Modality.VIDEO, data=mp4(self.video)))
        if self.action is not None:
            parts.append(ModalPart(modality=Modality.ACTION, data=npy(self.action)))
        return tuple(parts)


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def npy(values: npt.NDArray[np.float32]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


def mp4(frames: npt.NDArray[np.uint8]) -> bytes:
    from fractions import Fraction

    return encode_mp4(frames, Fraction(8), "")


def pictures(count: int, width: int, height: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Smooth frames [count, height, width, 3] that move."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:height, 0:width] / max(width, height)
    phase = rng.uniform(0, 6, size=(count, 1, 1, 3)) * 0.1 + np.arange(count).reshape(-1, 1, 1, 1) * 0.4
    waves = np.sin(
        phase
        + rng.uniform(3, 9, 3) * rows[None, :, :, None]
        + rng.uniform(3, 9, 3) * columns[None, :, :, None]
    )
    return np.asarray((waves * 0.5 + 0.5) * 255, np.uint8)


class Reference:
    """`diffusers.Cosmos3OmniPipeline` on a folder it saved itself, and transformers' reasoner on its tensors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pipeline = Cosmos3OmniPipeline.from_pretrained(
            folder, safety_checker=None, enable_safety_checker=False
        )
        self.pipeline.set_progress_bar_config(disable=True)
        for module in (self.pipeline.transformer, self.pipeline.vae, self.pipeline.sound_tokenizer):
            _align(module)
        self.reasoner = tied_reasoner(self.pipeline.transformer)

    def outputs(self, case: Case, **more: Any) -> Outputs:
        shift = float(case.param["shift"])
        self.pipeline.scheduler = unipc(shift)
        latents: list[Tensor] = []

        def keep(_pipeline: Any, _step: int, _timestep: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
            latents.append(state["latents"])
            return state

        result = self.pipeline(**self._asked(case), callback_on_step_end=keep, **more)
        found = {"latent": latents[-1][0], "video": torch.from_numpy(result.video)}
        if result.sound is not None:
            rate = self.pipeline.sound_tokenizer.config.sampling_rate
            found["audio"] = result.sound[:, : int(case.frames / case.fps * rate)]
        if result.action is not None:
            found["action"] = result.action[0]
        return found

    def _asked(self, case: Case) -> dict[str, Any]:
        asked: dict[str, Any] = {
            "prompt": case.prompt, "negative_prompt": case.negative, "fps": case.fps,
            "num_inference_steps": case.steps, "guidance_scale": case.guidance, "output_type": "np",
            "generator": torch.Generator("cpu").manual_seed(case.seed),
        }  # fmt: skip
        image = None if case.image is None else Image.fromarray(case.image)
        video = None if case.video is None else [Image.fromarray(frame) for frame in decoded(mp4(case.video))]
        if case.task in (TaskType.POLICY, TaskType.FORWARD_DYNAMICS, TaskType.INVERSE_DYNAMICS):
            action = CosmosActionCondition(
                mode=case.task.replace("-", "_"), chunk_size=case.frames - 1, domain_name=case.param["domain"],
                resolution_tier=int(case.param["tier"]), view_point=case.param["view"], image=image, video=video,
                raw_actions=None if case.action is None else torch.from_numpy(case.action),
            )  # fmt: skip
            return {**asked, "action": action, "use_system_prompt": False}
        assert case.size is not None
        if case.task is TaskType.V2V:
            asked["condition_frame_indexes_vision"] = list(range(case.param["condition_frames"]))
            asked["condition_video_keep"] = case.param["keep"]
        return {
            **asked, "image": image, "video": video, "width": case.size[0], "height": case.size[1],
            "num_frames": 1 if case.task is TaskType.T2I else case.frames, "enable_sound": case.param["audio"],
        }  # fmt: skip


def decoded(data: bytes) -> list[npt.NDArray[np.uint8]]:
    """The frames that anybody gets out of an encoded video: what both sides start from."""
    import av

    with av.open(io.BytesIO(data), "r") as container:
        return [np.asarray(frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]


def unipc(shift: float) -> Any:
    """The pipeline's scheduler, as the documentation configures it for video."""
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


def _save(folder: Path) -> None:
    configs = {name: dict(spec.config) for name, spec in TINY.components.items()}
    Cosmos3OmniPipeline(
        transformer=_perturbed(Cosmos3OmniTransformer(**configs["transformer"])),
        text_tokenizer=AutoTokenizer.from_pretrained(TOKENIZER),
        vae=_perturbed(AutoencoderKLWan(**configs["vae"])),
        scheduler=unipc(10.0),
        sound_tokenizer=_perturbed(Cosmos3AVAEAudioTokenizer(**configs["sound"])),
        safety_checker=None, enable_safety_checker=False,
    ).save_pretrained(folder)  # fmt: skip


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


class Mine:
    """fv on the reference's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = Engine([FOLDER], device="cpu", weights=folder, gain=Always(), reuse=False)

    @property
    def instance(self) -> Any:
        return self.engine.instance(FOLDER.model_id)

    def clip(self, case: Case) -> Clip:
        return self.engine.run(case.request())

    def outputs(self, case: Case) -> Outputs:
        found = dict(self.clip(case).tensors)
        found.pop("sound_latent", None)
        return found

    def again(self) -> None:
        """A new engine: its loops are built anew."""
        self.engine.close()
        self.engine = Engine([FOLDER], device="cpu", weights=self.folder, gain=Always(), reuse=False)


@pytest.fixture(scope="session")
def mine(reference: Reference) -> Iterator[Mine]:
    mine = Mine(reference.folder)
    yield mine
    mine.engine.close()


def largest_difference(mine: Outputs, theirs: Outputs) -> float:
    """The largest absolute difference in what fv made; refuses what is not alike or not finite."""
    assert mine.keys() <= theirs.keys()
    largest = 0.0
    for name, tensor in mine.items():
        other = theirs[name]
        assert tensor.shape == other.shape, f"{name}: {tensor.shape} is not {other.shape}"
        assert tensor.dtype == other.dtype, f"{name}: {tensor.dtype} is not {other.dtype}"
        assert tensor.isfinite().all() and other.isfinite().all(), f"{name} is not finite"
        largest = max(largest, float((tensor.double() - other.double()).abs().max()))
    return largest


@pytest.fixture(scope="session")
def compare() -> Callable[[Outputs, Outputs], float]:
    """`largest_difference`, for test modules, which cannot import each other."""
    return largest_difference


@pytest.fixture(scope="session")
def case_of() -> type[Case]:
    """`Case`, likewise."""
    return Case


@pytest.fixture(scope="session")
def pictures_of() -> Callable[..., npt.NDArray[np.uint8]]:
    """`pictures`, likewise."""
    return pictures


@pytest.fixture(scope="session")
def difference(mine: Mine, reference: Reference) -> Callable[..., float]:
    """The largest difference between fv and the pipeline on the case that the keywords state."""
    return lambda **facts: largest_difference(mine.outputs(Case(**facts)), reference.outputs(Case(**facts)))
