"""Recordings: the named tensors of one run in the order they were made, and what made them, as one file.

Taps are named `node/step/branch/output` for what a component returned, `node/step/output` for what a node has made
of its output by the end of a step, and `artifact` for what the caller gets.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fv_core import codec
from fv_core.codec import JSON
from fv_core.errors import ParityError
from fv_core.request import Environment, ResolvedRequest

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingFacts:
    """What was recorded: the card, the request as settled, where, and by what (`fv` or a reference)."""

    source: str
    card_digest: str
    request: ResolvedRequest
    environment: Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The taps of one run in order; tensors of any shape and type, on the CPU and with memory of their own."""

    facts: RecordingFacts
    taps: Mapping[str, Tensor] = field(repr=False)

    def save(self, path: Path) -> None:
        """Writes the file whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        text = json.dumps({"facts": codec.encode(self.facts), "order": list(self.taps)})
        partial = path.with_name(f".{path.name}.partial")
        try:
            partial.write_bytes(save(dict(self.taps), metadata={"format": str(FORMAT), "fv": text}))
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Raises:
        ParityError: FV605, the file is not a whole recording of this format.
        """
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata()
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            if metadata["format"] != str(FORMAT):
                raise ValueError(f"format {metadata['format']} is not {FORMAT}")
            header: dict[str, JSON] = json.loads(metadata["fv"])
            order = codec.decode(tuple[str, ...], header["order"])
            if set(order) != set(tensors):
                raise ValueError("the tensors are not those that its header lists")
            facts = codec.decode(RecordingFacts, header["facts"])
        except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
            raise not_readable(path, str(error)) from error
        return cls(facts=facts, taps={name: tensors[name] for name in order})


def copied(tensor: Tensor) -> Tensor:
    """A tap's value: on the CPU, dense, sharing memory with nothing."""
    return tensor.detach().to("cpu", copy=True).contiguous()


def not_readable(path: Path, why: str) -> ParityError:
    """FV605: the file does not serve as a recording here."""
    return ParityError(
        "FV605",
        name="recording",
        value=str(path),
        rule=f"cannot be used: {why}",
        remedy="Make one with `fv parity check ID --record FILE`.",
    )
