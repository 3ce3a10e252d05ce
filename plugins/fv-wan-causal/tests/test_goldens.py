"""fv's engine against what the official code made: every flow, data prediction and latent, and the last window.

Kernels of another processor round otherwise, the official code's own run included. So differences are held to 1e-5
everywhere, and bits where this machine's arithmetic is one that the official code's bits are known for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core.loop import chunk_rollout
from fv_wan_causal.card import SF_1_3B
from fv_wan_causal.transcription import Pipeline

ROUNDING = 1e-5
CASES = ("wnone_s0", "w6_s0", "w6_s1", "w6_s3", "w9_s3", "first1_7f", "extend_3p6f")
TRACED = ("wnone_s0", "w6_s1")

Named = dict[str, Tensor]


def largest(mine: Tensor, theirs: Tensor) -> float:
    """The largest absolute difference; refuses what is not alike or not finite."""
    assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
    assert mine.isfinite().all() and theirs.isfinite().all()
    return float((mine.double() - theirs.double()).abs().max())


def official_layout(tensor: Tensor) -> Tensor:
    """[1, F, C, H, W] of [C, F, H, W]."""
    return tensor.transpose(0, 1).unsqueeze(0).contiguous()


def named(case: str, trace: Any, goldens: Any, given: int) -> Named:
    """A trace by the names of the goldens. The official code converts the committing forwards too, and drops it."""
    last = goldens.inputs["schedule.sigmas"][-1].double()
    found: Named = {}
    for index, chunk in enumerate(trace.chunks[given:]):
        found[f"{case}.chunk{index}"] = official_layout(chunk)
    for index, (before, flow, x0) in enumerate(zip(trace.inputs, trace.flows, trace.x0s, strict=True)):
        found[f"{case}.call{index:02d}.flow"] = official_layout(flow)
        clean = (before.double() - last * flow.double()).float() if x0 is None else x0
        found[f"{case}.call{index:02d}.x0"] = official_layout(clean)
    for index, part in enumerate(trace.window):
        found[f"{case}.kv{index // 2}.{'kv'[index % 2]}"] = part.unsqueeze(0).contiguous()
    return found


def digest(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()[:16]


@pytest.fixture(scope="session")
def found(traces: Callable[[str], Any], goldens: Any, cases: Any) -> Callable[[str], Named]:
    return lambda case: named(case, traces(case), goldens, int(bool(cases[case]["prefill_frames"])))


@pytest.mark.parametrize("case", CASES)
def test_latents_are_those_of_the_official_code(
    case: str, found: Callable[[str], Named], goldens: Any, cases: Any
) -> None:
    mine = found(case)
    chunks = range(len(cases[case]["chunks"]))
    assert (
        max(largest(mine[f"{case}.chunk{i}"], goldens.latents[f"{case}.chunk{i}"]) for i in chunks)
        <= ROUNDING
    )


@pytest.mark.parametrize("case", TRACED)
def test_every_forward_and_the_last_window_are_those_of_the_official_code(
    case: str, found: Callable[[str], Named], goldens: Any
) -> None:
    mine = found(case)
    theirs = {
        name: tensor
        for name, tensor in goldens.trace.items()
        if name.startswith(f"{case}.") and not name.endswith("timestep")
    }
    assert len(theirs) == 44
    for name, tensor in theirs.items():
        assert largest(mine[name], tensor) <= ROUNDING, name


@pytest.mark.parametrize("case", CASES)
def test_bits_are_those_of_the_official_code_on_an_arithmetic_that_it_ran_on(
    case: str, found: Callable[[str], Named], goldens: Any
) -> None:
    mine = {name: digest(tensor) for name, tensor in found(case).items()}
    known: dict[str, str] = goldens.bits or mine  # elsewhere the two tests above are what can be told
    assert mine == {name: value for name, value in known.items() if name.startswith(f"{case}.")}


def test_bits_are_known_of_every_tensor_that_is_compared(found: Callable[[str], Named]) -> None:
    stored = json.loads((Path(__file__).parent / "goldens" / "bits.json").read_text())["arithmetics"]
    names = sorted(name for case in CASES for name in found(case))
    assert all(sorted(bits) == names for bits in stored.values()) and stored


@pytest.mark.parametrize("case", TRACED)
def test_timesteps_are_those_of_the_official_code(
    case: str, traces: Callable[[str], Any], goldens: Any
) -> None:
    theirs = [goldens.trace[f"{case}.call{i:02d}.timestep"] for i in range(20)]
    assert traces(case).timesteps == [float(rows.flatten()[0]) for rows in theirs]


def test_noise_levels_are_those_that_the_official_table_gives(goldens: Any) -> None:
    table, times = goldens.inputs["schedule.sigmas"], goldens.inputs["schedule.timesteps"]
    steps = goldens.inputs["schedule.denoising_steps"]
    assert tuple(float(table[(times - step).abs().argmin()]) for step in steps) == SF_1_3B.recipe.sigmas
    loop = chunk_rollout.ChunkRollout(SF_1_3B, SF_1_3B.loops["rollout"])
    assert loop._timesteps == tuple(steps.tolist())


@pytest.mark.parametrize("case", CASES)
def test_the_reference_is_the_official_code_too(
    case: str, found: Callable[[str], Named], goldens: Any, cases: Any, official: Any, folder: Path
) -> None:
    """The transcription that certificates are measured with gives fv's bits, which the tests above hold to goldens."""
    from diffusers import WanTransformer3DModel

    facts = cases[case]
    module = WanTransformer3DModel.from_pretrained(folder / "transformer").requires_grad_(False).eval()
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()
    settings = {
        "chunk": 3, "first_frame": facts["independent_first_frame"], "window": facts["window"], "sink": facts["sink"],
    }  # fmt: skip
    pipeline = Pipeline(module, settings, SF_1_3B.recipe.sigmas)
    noises = [noise.unsqueeze(0) for noise in goldens.noises(case)]
    given = goldens.inputs["initial_latent.extend"] if facts["prefill_frames"] else None
    later = iter(noises[1:])
    with torch.no_grad():
        steps = pipeline.rollout(noises[0], goldens.inputs["text_embeds"], given, lambda x0: next(later)[0])
        flows = [flow for flow, _ in steps if flow is not None]
    mine = found(case)
    for index, flow in enumerate(flows):
        assert torch.equal(flow, mine[f"{case}.call{index:02d}.flow"])
    for layer, buffer in enumerate(pipeline.buffers):
        for name in "kv":
            assert torch.equal(buffer[name][:, : buffer["filled"]], mine[f"{case}.kv{layer}.{name}"])
