"""Sizes as people write and read them."""

from __future__ import annotations

import pytest

from fv_core.errors import RequestError
from fv_core.memory import parse_bytes, shown


@pytest.mark.parametrize(
    ("given", "size"),
    [
        (1, 1), ("1", 1), ("8GiB", 8 * 2**30), ("1.5 KiB", 1536), ("512mib", 512 * 2**20), (" 7 B ", 7),
        ("0.25TiB", 2**38), (2**60, 2**60),
    ],
)  # fmt: skip
def test_sizes_are_read(given: int | str, size: int) -> None:
    assert parse_bytes(given) == size


@pytest.mark.parametrize(
    "given", [0, -1, "", "GiB", "8GB", "8 G", "1.5", "0.3KiB", "1e9", "nan", True, None, "8GiB8", "٣", 10**20]
)
def test_what_is_no_size_is_refused(given: object) -> None:
    with pytest.raises(RequestError) as caught:
        parse_bytes(given)  # type: ignore[arg-type]
    assert caught.value.code == "FV312" and "GiB" in caught.value.legal


def test_sizes_are_told_exactly_and_for_people() -> None:
    assert [shown(count) for count in (0, 1023, 1024, 5 * 2**30)] == [
        "0 bytes", "1023 bytes", "1024 bytes (1.0 KiB)", "5368709120 bytes (5.0 GiB)",
    ]  # fmt: skip
