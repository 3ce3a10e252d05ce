"""A run's figures for TensorBoard: event files in the run's folder, a scalar per role and figure."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from fv_core.errors import TrainError
from fv_core.training.runlog import StepTold

FOLDER: Final = "tensorboard"
"""Where a run's folder has the event files."""


def require_tensorboard() -> None:
    """Raises:
    TrainError: FV706, it is not installed.
    """
    if find_spec("tensorboard") is None:
        raise TrainError(
            "FV706",
            name="log",
            value="tensorboard",
            rule="needs tensorboard, which is not installed",
            remedy="pip install 'fv-core[train]'",
        )


class TensorBoard:
    """Writes event files. Readers drop those of steps that a resumed run takes again.

    Args:
        done: steps that are not written again.
    """

    def __init__(self, run: Path, *, done: int) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter  # takes seconds to import

        self._writer = SummaryWriter(str(run / FOLDER), purge_step=done + 1)

    def tell(self, told: StepTold) -> None:
        for name, value in told.figures.items():
            self._writer.add_scalar(f"{told.role}/{name}", value, told.step)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
