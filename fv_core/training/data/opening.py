"""The data of a run: its source, what is told of it before the first step, and its latents where they are needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torch import Tensor

from fv_core import codec
from fv_core.home import home
from fv_core.training.config import DataTable
from fv_core.training.contract import DataContext, Latent, Method, Source
from fv_core.training.data.encoded import Encoded, Filled, Outlined
from fv_core.training.data.encoder import Encoder
from fv_core.training.data.folder import FolderSource
from fv_core.training.data.report import Report
from fv_core.training.data.store import FeatureStore

AUTO: Final = "auto"
OFF: Final = "off"
"""Values of `data.cache` that are no folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """The data of a run.

    Args:
        source: what batches are taken from.
        report: of its files; None: it has none.
        digest: of what each sample is made of, by which a run knows its data again; "" where that is a procedure's
            settings alone.
    """

    source: Source
    report: Report | None = None
    digest: str = ""

    def embeds(self, caption: str) -> Tensor | None:
        """The embeddings of a caption that is none of a sample's; None: samples do not have theirs."""
        return self.source.embeds(caption) if isinstance(self.source, Encoded) else None

    def fill(self, *, rank: int = 0, ranks: int = 1) -> Filled | None:
        """As `Encoded.fill`; None: nothing of this data is kept."""
        if isinstance(self.source, Encoded) and self.source.store is not None:
            return self.source.fill(rank=rank, ranks=ranks)
        return None


def open_data(
    made: Source, table: DataTable, method: Method, context: DataContext, encoder: Callable[[], Encoder]
) -> Data:
    """The data of a run.

    Args:
        made: what the kind of source built.
        encoder: makes that of the model; asked for where a method takes latents.
    """
    report = made.report if isinstance(made, FolderSource) else None
    digest = _digest(made) if isinstance(made, Outlined) else ""
    if method.content is not Latent:
        return Data(source=made, report=report, digest=digest)
    empty = context.card.defaults.negative_prompt
    source = Encoded(
        made,
        encoder(),
        _store(made, table.cache, context.folder),
        with_embeds=method.takes_embeds,
        captions=(empty,) if table.caption_dropout else (),
    )
    return Data(source=source, report=report, digest=digest)


def _store(made: Source, cache: str, folder: Path) -> FeatureStore | None:
    """A procedure's clips are not kept unless a folder is named: there may be any number of them."""
    if cache == OFF or (cache == AUTO and not isinstance(made, Outlined)):
        return None
    return FeatureStore(home() / "features" if cache == AUTO else folder / cache)


def _digest(made: Outlined) -> str:
    return codec.digest([made.outline(index, 0) for index in range(len(made))])
