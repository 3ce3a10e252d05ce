"""Enlarging by a whole factor, so that small clips can be looked at without inventing pixels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fv_core.errors import RequestError


def check_scale(scale: int) -> None:
    """Raises:
    RequestError: `scale` is not a whole number of at least 1 (FV315).
    """
    if isinstance(scale, bool) or not isinstance(scale, int) or scale < 1:
        raise RequestError(
            "FV315",
            name="scale",
            value=scale,
            rule="does not enlarge by a whole factor",
            legal="a whole number of at least 1",
            remedy="Give 1 to keep the size.",
        )


def enlarged(frames: npt.NDArray[np.uint8], scale: int) -> npt.NDArray[np.uint8]:
    """[..., H, W, 3] as [..., H * scale, W * scale, 3], nearest neighbour; `scale` at least 1."""
    return frames if scale == 1 else frames.repeat(scale, axis=-3).repeat(scale, axis=-2)
