"""What JSON is refused before it is decoded, and how little that costs."""

from __future__ import annotations

import contextlib
from time import perf_counter

import pytest

from frontend.limits import BULK_BYTES_MAX, JSON_VALUES_MAX
from frontend.strict_json import TooManyValues, check_values


@pytest.mark.parametrize("item", [b"1", b'""', b'"a,b"', b'"a\\"b"', b'"\\\\"', b"[]"])
def test_values_are_counted_outside_of_strings(item: bytes) -> None:
    few, many = (b",".join([item] * count) for count in (JSON_VALUES_MAX // 2, JSON_VALUES_MAX + 1))
    check_values(b"[" + few + b"]")
    check_values(b'["' + b",:[{" * JSON_VALUES_MAX + b'"]')
    with pytest.raises(TooManyValues):
        check_values(b"[" + many + b"]")


def test_more_strings_than_values_are_refused_before_the_text_is_cut_at_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(_: bytes) -> bytes:
        raise AssertionError("the text was cut")

    monkeypatch.setattr("frontend.strict_json._outside_strings", cut)
    with pytest.raises(TooManyValues):
        check_values(b'"",' * (2 * JSON_VALUES_MAX))
    check_values(b'"' * BULK_BYTES_MAX)  # what no decoder gets further in than the second


@pytest.mark.parametrize("piece", [b'"', b'"",', b",", b'\\"', b"\\"])
def test_frame_of_one_character_holds_no_loop(piece: bytes) -> None:
    text = piece * (BULK_BYTES_MAX // len(piece))
    took_s = []
    for _ in range(5):
        began_s = perf_counter()
        with contextlib.suppress(TooManyValues):
            check_values(text)
        took_s.append(perf_counter() - began_s)
    assert min(took_s) < 0.1
