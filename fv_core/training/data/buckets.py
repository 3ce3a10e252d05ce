"""Buckets: the geometries that clips are brought to, and which of them a clip goes to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fv_core.card import ModelCard
from fv_core.errors import TrainError
from fv_core.request import Size
from fv_core.training.contract import Bucket


def legal_buckets(given: Sequence[Sequence[int]], card: ModelCard) -> tuple[Bucket, ...]:
    """The buckets of a data set.

    Args:
        given: [frames, height, width] each; none given: one of the card's default size and frames.

    Raises:
        TrainError: FV721, one that the model has no latents for; the message tells the nearest that it has.
    """
    defaults = card.defaults
    if not given:
        given = [(defaults.frames, defaults.size.height, defaults.size.width)]
    return tuple(dict.fromkeys(_legal(one, card) for one in given))


def choose(buckets: Iterable[Bucket], frames: int, size: Size) -> Bucket | None:
    """The bucket of a clip: of those that it fills, the longest, of these the one of the nearest shape.

    Frames are never made up: a clip goes into no bucket that is longer. One frame is an image, and no part of a video.
    Of buckets of one shape it is the largest that the clip need not be enlarged for, else the smallest.

    Args:
        frames: of the clip at the data set's rate.

    Returns:
        None: there is no bucket so short.
    """
    filled = [one for one in buckets if one.frames <= frames and (one.frames == 1) == (frames == 1)]
    longest = max((one.frames for one in filled), default=0)
    return min(
        (one for one in filled if one.frames == longest), key=lambda one: _misfit(one, size), default=None
    )


def scale(bucket: Bucket, size: Size) -> float:
    """The factor by which a picture is scaled to cover the bucket."""
    return max(bucket.width / size.width, bucket.height / size.height)


def _misfit(bucket: Bucket, size: Size) -> tuple[float, bool, int]:
    shape = abs(math.log(bucket.width * size.height / (bucket.height * size.width)))
    enlarged = scale(bucket, size) > 1
    area = bucket.width * bucket.height
    return round(shape, 9), enlarged, area if enlarged else -area


def _legal(given: Sequence[int], card: ModelCard) -> Bucket:
    sides = [side for side in given if isinstance(side, int) and not isinstance(side, bool) and side > 0]
    if len(given) != 3 or len(sides) != 3:
        raise _illegal(
            list(given), "is not [frames, height, width], whole numbers from 1 up", "[81, 480, 832]", ""
        )
    frames, height, width = sides
    size, limits = Size(width, height), card.limits
    near = limits.size.nearest(size)
    if not limits.frames.allows(frames):
        rule = f"has a number of frames that {card.model_id} has no latents for"
        raise _illegal(
            [*given], rule, limits.frames.legal(), f"[{limits.frames.nearest(frames)}, {height}, {width}]"
        )
    if not limits.size.allows(size):
        rule = f"has a size that {card.model_id} has no latents for"
        raise _illegal([*given], rule, limits.size.legal(), f"[{frames}, {near.height}, {near.width}]")
    return Bucket(frames=frames, height=height, width=width)


def _illegal(value: list[int], rule: str, legal: str, nearest: str) -> TrainError:
    return TrainError(
        "FV721",
        name="data.buckets",
        value=value,
        rule=rule,
        legal=legal,
        remedy=f"The nearest is {nearest}." if nearest else "Write one as in the example.",
    )
