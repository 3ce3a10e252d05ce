"""How clips are cut into chunks, and which lengths the reference has too."""

from __future__ import annotations

import pytest

from fv_core.errors import RequestError
from fv_core.loop.chunks import Cutting

PLAIN = Cutting(chunk=3, first_frame=False, trained=21)
ALONE = Cutting(chunk=3, first_frame=True, trained=None)


def clip_frames(latent_frames: int) -> int:
    return 4 * latent_frames - 3


@pytest.mark.parametrize(
    ("cutting", "frames", "given", "sizes", "given_chunks"),
    [
        (PLAIN, 9, 0, (3, 3, 3), 0),
        (PLAIN, 8, 0, (3, 3, 2), 0),
        (PLAIN, 1, 0, (1,), 0),
        (PLAIN, 9, 3, (3, 3, 3), 1),
        (PLAIN, 9, 4, (3, 1, 3, 2), 2),
        (ALONE, 7, 0, (1, 3, 3), 0),
        (ALONE, 6, 0, (1, 3, 2), 0),
        (ALONE, 1, 0, (1,), 0),
        (ALONE, 7, 1, (1, 3, 3), 1),
        (ALONE, 10, 4, (1, 3, 3, 3), 2),
        (ALONE, 10, 3, (1, 2, 3, 3, 1), 2),
    ],
)
def test_chunks_hold_every_frame_once_and_given_ones_are_chunks_of_their_own(
    cutting: Cutting, frames: int, given: int, sizes: tuple[int, ...], given_chunks: int
) -> None:
    assert cutting.sizes(frames, given) == (sizes, given_chunks)
    assert sum(sizes) == frames
    assert sum(sizes[:given_chunks]) == given


@pytest.mark.parametrize(
    ("cutting", "frames", "legal"),
    [
        (PLAIN, 8, "21 or 33"),
        (PLAIN, 1, "9"),
        (PLAIN, 24, "up to 81"),
        (ALONE, 6, "13 or 25"),
        (ALONE, 2, "1 or 13"),
    ],
)
def test_other_lengths_than_the_references_are_refused_with_the_nearest(
    cutting: Cutting, frames: int, legal: str
) -> None:
    with pytest.raises(RequestError) as refused:
        cutting.check(frames, clip_frames)
    assert refused.value.code == "FV314"
    assert refused.value.value == clip_frames(frames)
    assert refused.value.legal == f"under reference numerics {legal}"


@pytest.mark.parametrize(
    ("cutting", "frames"), [(PLAIN, 3), (PLAIN, 21), (ALONE, 1), (ALONE, 4), (ALONE, 100)]
)
def test_lengths_of_the_reference_pass(cutting: Cutting, frames: int) -> None:
    cutting.check(frames, clip_frames)
