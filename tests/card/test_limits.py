"""Limits: what they call nearest is legal, and never further than another legal value."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fv_core.card import FrameRule, ParamRule, SizeRule
from fv_core.request import Size

whole = st.integers()


@st.composite
def size_rules(draw: st.DrawFn) -> SizeRule:
    multiple, least, span = draw(st.integers(1, 64)), draw(st.integers(1, 40)), draw(st.integers(0, 40))
    inside = draw(st.integers(0, multiple - 1))
    return SizeRule(
        multiple=multiple, smallest=least * multiple - inside, largest=(least + span) * multiple + inside
    )


@given(size_rules(), whole, whole)
def test_nearest_size_is_legal_and_the_closest(rule: SizeRule, width: int, height: int) -> None:
    nearest = rule.nearest(Size(width, height))
    assert rule.allows(nearest)
    legal = [side for side in range(rule.largest + 1) if rule.allows(Size(side, side))]
    assert abs(nearest.width - width) == min(abs(side - width) for side in legal)
    assert abs(nearest.height - height) == min(abs(side - height) for side in legal)


@given(size_rules(), st.integers(1, 4000), st.integers(1, 4000))
def test_legal_size_is_its_own_nearest(rule: SizeRule, width: int, height: int) -> None:
    size = Size(width, height)
    assert (rule.nearest(size) == size) is rule.allows(size)


@given(st.integers(1, 16), st.integers(1, 200), whole)
def test_nearest_frame_count_is_legal_and_the_closest(multiple: int, largest: int, frames: int) -> None:
    rule = FrameRule(multiple=multiple, largest=largest)
    nearest = rule.nearest(frames)
    assert rule.allows(nearest)
    legal = [count for count in range(largest + 1) if rule.allows(count)]
    assert abs(nearest - frames) == min(abs(count - frames) for count in legal)


def test_nearest_takes_numbers_of_any_length() -> None:
    assert SizeRule().nearest(Size(10**400, -(10**400))) == Size(2048, 16)
    assert FrameRule().nearest(10**400) == 4093


@given(st.one_of(st.floats(), st.integers(), st.text(), st.booleans(), st.none(), st.lists(st.floats())))
def test_number_rule_allows_numbers_of_its_range_alone(value: object) -> None:
    rule = ParamRule(doc="x", lowest=0.5, highest=2.0)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    assert rule.allows(value) is (number and 0.5 <= value <= 2.0)  # type: ignore[arg-type, operator]


@given(st.one_of(st.text(), st.floats(), st.booleans(), st.lists(st.text())))
def test_choice_rule_allows_its_choices_alone(value: object) -> None:
    rule = ParamRule(doc="x", choices=("a", "b"))
    assert rule.allows(value) is (value in ("a", "b"))  # type: ignore[arg-type]
    assert rule.allows("a")
