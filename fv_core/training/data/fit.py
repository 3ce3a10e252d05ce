"""Pictures brought to a bucket: scaled to cover it and cut around their centre, in one resampling."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from fv_core.request import Size
from fv_core.training.contract import Bucket
from fv_core.training.data.buckets import scale

Picture = npt.NDArray[np.uint8]


def fitted(picture: Picture, bucket: Bucket) -> Picture:
    """uint8 [H, W, 3] as [bucket.height, bucket.width, 3]; a picture of this size keeps every bit.

    Bicubic, over as many pixels as become one, so that a much smaller picture does not alias.
    """
    height, width, _ = picture.shape
    if (height, width) == (bucket.height, bucket.width):
        return picture
    left, top, right, bottom = cut(Size(width, height), bucket)
    whole = (left, top, right, bottom) == (round(left), round(top), round(right), round(bottom))
    if whole and (right - left, bottom - top) == (bucket.width, bucket.height):
        return picture[round(top) : round(bottom), round(left) : round(right)]
    image = Image.fromarray(picture)
    scaled = image.resize(
        (bucket.width, bucket.height), Image.Resampling.BICUBIC, box=(left, top, right, bottom)
    )
    return np.asarray(scaled)


def cut(size: Size, bucket: Bucket) -> tuple[float, float, float, float]:
    """The part of a picture that is kept: left, top, right and bottom, in its own pixels."""
    factor = scale(bucket, size)
    width = min(bucket.width / factor, size.width)
    height = min(bucket.height / factor, size.height)
    left, top = (size.width - width) / 2, (size.height - height) / 2
    return left, top, left + width, top + height


def changes(size: Size, bucket: Bucket) -> tuple[str, ...]:
    """What `fitted` does to a picture of this size, in words; () for nothing."""
    left, top, right, bottom = cut(size, bucket)
    kept = Size(round(right - left), round(bottom - top))
    told = []
    if kept != size:
        told.append(f"cropped to {kept}")
    if (factor := scale(bucket, size)) != 1:
        told.append(f"{'enlarged' if factor > 1 else 'scaled'} to {Size(bucket.width, bucket.height)}")
    return tuple(told)
