"""What an error says of itself."""

from __future__ import annotations

import pickle

from fv_core.errors import RequestError

ERROR = RequestError(
    "FV302", name="size", value="72x72", rule="is off the grid", legal="multiples of 16", remedy="Give 64x64."
)


def test_its_text_is_code_message_and_remedy_in_one_line() -> None:
    assert str(ERROR) == "FV302 size '72x72': is off the grid (legal: multiples of 16). Give 64x64."
    assert ERROR.message in str(ERROR)


def test_its_text_survives_a_process_pool() -> None:
    assert str(pickle.loads(pickle.dumps(ERROR))) == str(ERROR)
