"""Runs on the kit's tiny card, whose steps take milliseconds: for tests of training methods and of the trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from fv_core.card import ModelCard
from fv_core.loop.keyed import DrawKey, keyed_normal
from fv_core.testing.tiny import CARD, CHANNELS
from fv_core.training.config import config_of
from fv_core.training.contract import Bucket, Latent, Sample, Source
from fv_core.training.ranks import Ranks
from fv_core.training.setup import set_up
from fv_core.training.trainer import Trainer

SMALL: Final = Bucket(frames=5, height=16, width=16)
LARGE: Final = Bucket(frames=5, height=16, width=32)


@dataclass(frozen=True, kw_only=True)
class LatentSource:
    """Latents and captions that follow from the index: a posterior each, and no file.

    Args:
        buckets: of each sample. change: what becomes of it.
    """

    buckets: tuple[Bucket, ...] = (SMALL,) * 6
    dtype: torch.dtype = torch.float32
    change: Callable[[Sample], Sample] = field(default=lambda sample: sample)

    def __len__(self) -> int:
        return len(self.buckets)

    def bucket(self, index: int) -> Bucket:
        return self.buckets[index]

    def sample(self, index: int, epoch: int) -> Sample:
        bucket = self.buckets[index]
        shape = (CHANNELS, (bucket.frames - 1) // 4 + 1, bucket.height // 8, bucket.width // 8)
        mean = keyed_normal(DrawKey(seed=1, purpose="sample", sample=index), shape).to(self.dtype)
        latent = Latent(mean=mean, std=torch.full_like(mean, 0.1))
        return self.change(Sample(id=f"clip{index}", caption=f"clip {index}", content=latent))


def tiny_run(
    folder: Path,
    source: Source | None = None,
    *,
    ranks: Ranks | None = None,
    card: ModelCard = CARD,
    **settings: Any,
) -> Trainer:
    """A run of four steps of two samples in `folder`, not begun. `trainer.setup.engine` is the caller's to close.

    Args:
        card: the model.
        settings: keys to set by table, `train={"steps": 8}`, or what is no table: `log=["tensorboard"]`.
    """
    tables: dict[str, Any] = {
        "model": card.model_id,
        "method": {"name": "finetune"},
        "data": {"name": "memory"},
        "save": {"dir": str(folder)},
        "train": {"steps": 4, "batch": 2, "lr": 1e-2},
    }
    for name, keys in settings.items():
        tables[name] = {**tables.get(name, {}), **keys} if isinstance(keys, Mapping) else keys
    config = config_of(tables)
    setup = set_up(config, ranks=(ranks or Ranks()).count, card=card, source=source or LatentSource())
    return Trainer(config, setup, ranks=ranks)
