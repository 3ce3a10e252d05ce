"""The recordings of the published code, and fv on the same folder of weights."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from fv_bagel.card import TINY
from fv_bagel.components import Vae
from fv_bagel.grid import pack
from fv_core import Clip, Engine, OutputSpec, Request
from fv_core.cache import CacheContent
from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.request import Modality, ModalPart, Numerics, TaskType
from fv_core.runtime.gain import Always

FOLDER = Path(__file__).parent / "goldens"
ELSEWHERE = 1e-5
"""The largest difference on a CPU that sums products up in another order than the recording's."""
ELSEWHERE_BF16 = 0.25
"""The same in bf16, where two CPUs were 0.17 apart under one code."""


@dataclass(frozen=True, kw_only=True)
class Goldens:
    """The recordings: `first` and `rerun` by name, the cases' arguments, and whether this CPU is the rerun's."""

    first: dict[str, Tensor]
    rerun: dict[str, Tensor]
    cases: dict[str, Any]
    facts: dict[str, Any]
    here: bool

    def image(self, side: int) -> ModalPart:
        """The input image of 112 or 98 pixels a side."""
        return picture(self.first[f"input.image_{side}_u8"])


def picture(image: Tensor) -> ModalPart:
    """uint8 [H, W, 3] as an input of a request."""
    memory = io.BytesIO()
    Image.fromarray(image.numpy()).save(memory, format="PNG")
    return ModalPart(modality=Modality.IMAGE, data=memory.getvalue())


def alike(probes: dict[str, Tensor]) -> bool:
    """Whether this CPU sums up as the one of a rerun: 1 to 51 rows through a layer, attention, an activation."""
    weights, x = load_file(FOLDER / "ema.safetensors"), probes["probe.x"]
    weight, bias = (weights[f"vae2llm.{name}"].to(x.dtype, copy=True) for name in ("weight", "bias"))
    found = {f"linear.{n}": F.linear(x[:n].clone(), weight, bias) for n in (1, 2, 12, 18, 51)}
    found["attention"] = F.scaled_dot_product_attention(
        probes["probe.q"], probes["probe.kv"], probes["probe.kv"]
    )
    found["silu"] = F.silu(x)
    return all(torch.equal(value, probes[f"probe.{name}"]) for name, value in found.items())


class Mine:
    """fv on the recordings' folder: cases as the recordings state them."""

    def __init__(self, goldens: Goldens, dtype: str = "float32") -> None:
        self._goldens = goldens
        self.engine = Engine([TINY], device="cpu", dtype=dtype, weights=FOLDER, gain=Always(), reuse=False)

    def request(self, case: str, **changes: Any) -> Request:
        facts = self._goldens.cases[case]
        given = facts["args"]
        params: dict[str, Any] = {"think": given.get("think", False)}
        if "max_think_token_n" in given:  # which counts the start mark
            params["max_tokens"] = given["max_think_token_n"] - 1
        stated: dict[str, Any] = {"task": TaskType.QA} if case == "vlm" else self._made(case, given, params)
        stated["params"] = params | changes.pop("params", {})
        if case in ("vlm", "edit"):
            stated["inputs"] = (self._goldens.image(112),)
        return Request(
            **{"prompt": facts["prompt"][0], "seed": 11, "numerics": Numerics.REFERENCE, **stated, **changes}
        )

    def run(self, case: str, **changes: Any) -> Clip:
        return self.engine.run(self.request(case, **changes))

    def latent(self, case: str, **changes: Any) -> Tensor:
        """The latent in tokens, as the recordings have it."""
        return pack(self.run(case, **changes).tensors["latent"][:, 0], 2)

    def difference(self, case: str, **changes: Any) -> float:
        """From the rerun where this CPU is its, else from the first recording."""
        recorded = self._goldens.rerun if self._goldens.here else self._goldens.first
        return apart(self.latent(case, **changes), recorded[f"{case}.latent"])

    @staticmethod
    def _made(case: str, given: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        low, high = given["cfg_interval"]
        params |= {
            "shift": given["timestep_shift"],
            "image_guidance": given["cfg_img_scale"],
            "interval_low": low,
            "interval_high": high,
            "renorm": given["cfg_renorm_type"],
            "renorm_min": given["cfg_renorm_min"],
        }
        stated = {
            "steps": given["num_timesteps"] - 1,
            "guidance": given["cfg_text_scale"],
            "output": OutputSpec(keep=("latent",)),
        }
        if case == "edit":
            return {"task": TaskType.EDIT, **stated}
        height, width = given["image_shapes"]
        return {"task": TaskType.T2I, "size": (width, height), **stated}


def apart(mine: Tensor, theirs: Tensor) -> float:
    """The largest absolute difference; refuses what is not alike or not finite."""
    assert mine.shape == theirs.shape, f"{mine.shape} is not {theirs.shape}"
    assert mine.dtype == theirs.dtype, f"{mine.dtype} is not {theirs.dtype}"
    assert mine.isfinite().all()
    assert theirs.isfinite().all()
    return float((mine.double() - theirs.double()).abs().max())


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Bits depend on the number of threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def goldens() -> Goldens:
    facts = json.loads((FOLDER / "cases_fp32.json").read_text())
    rerun = load_file(FOLDER / "rerun_fp32.safetensors")
    return Goldens(
        first=load_file(FOLDER / "golden_fp32.safetensors"),
        rerun=rerun,
        cases=facts["cases"],
        facts=facts,
        here=alike(rerun),
    )


@pytest.fixture(scope="session")
def mine(goldens: Goldens) -> Iterator[Mine]:
    made = Mine(goldens)
    yield made
    made.engine.close()


@pytest.fixture(scope="session")
def bf16() -> dict[str, Tensor]:
    """The rerun in bf16."""
    return load_file(FOLDER / "rerun_bf16.safetensors")


@pytest.fixture(scope="session")
def mine_bf16(goldens: Goldens) -> Iterator[Mine]:
    made = Mine(goldens, "bfloat16")
    yield made
    made.engine.close()


@pytest.fixture(scope="session")
def tolerance_bf16(bf16: dict[str, Tensor]) -> float:
    return 0.0 if alike(bf16) else ELSEWHERE_BF16


def encode_to(latent: Tensor, noise: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the autoencoder return a recorded latent; the noise is drawn all the same."""

    def encode(vae: Vae, call: ResolvedCall) -> ComponentOutput:
        assert torch.equal(call.rows["noise"], noise)  # type: ignore[arg-type]  # a tensor
        return ComponentOutput(output=CallOutput(tensors={"latent": latent}))

    monkeypatch.setattr(Vae, "encode", encode)


@pytest.fixture
def stored_latent(goldens: Goldens, monkeypatch: pytest.MonkeyPatch) -> None:
    """The autoencoder returns the latent of the first recording."""
    encode_to(goldens.first["edit.vae_encoded"][0], goldens.first["edit.vae_noise"][0], monkeypatch)


@pytest.fixture
def stored_latent_bf16(goldens: Goldens, bf16: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the recording in bf16."""
    encode_to(bf16["edit.vae_encoded"][0].float(), goldens.first["edit.vae_noise"][0], monkeypatch)


@pytest.fixture(scope="session")
def folder() -> Path:
    return FOLDER


@pytest.fixture(scope="session")
def difference() -> Callable[[Tensor, Tensor], float]:
    """`apart`, for test modules, which cannot import each other."""
    return apart


@pytest.fixture(scope="session")
def tolerance(goldens: Goldens) -> float:
    """Of a comparison with the rerun: none on its own CPU."""
    return 0.0 if goldens.here else ELSEWHERE


@pytest.fixture(scope="session")
def elsewhere() -> float:
    return ELSEWHERE


@pytest.fixture(scope="session")
def part_of() -> Callable[[Tensor], ModalPart]:
    """`picture`, likewise."""
    return picture


@pytest.fixture(scope="session")
def call_of() -> Callable[..., ResolvedCall]:
    """A call of a component, made by hand."""

    def made(
        rows: dict[str, Any], static: dict[str, Any] | None = None, *caches: CacheContent
    ) -> ResolvedCall:
        return ResolvedCall(rows=rows, static=static or {}, caches=caches)

    return made
