"""msgpack is refused where it claims more than it is; what msgspec writes passes."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.limits import MSGPACK_DEPTH_MAX, MSGPACK_VALUES_MAX
from frontend.strict_json import RepeatedMember
from frontend.strict_msgpack import MsgpackRefused, check_msgpack

_encode = msgspec.msgpack.encode
_scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary()
_values = st.recursive(_scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)


@given(_values)
def test_what_an_encoder_writes_passes_or_is_too_deep(value: object) -> None:
    try:
        check_msgpack(_encode(value))
    except MsgpackRefused as error:
        assert "deeper" in str(error)


@given(_values, st.data())
def test_cut_value_is_refused(value: object, data: st.DataObject) -> None:
    raw = _encode(value)
    with pytest.raises(MsgpackRefused):
        check_msgpack(raw[: data.draw(st.integers(0, len(raw) - 1))])


@pytest.mark.parametrize("second", [b"\xa2ab", b"\xd9\x02ab", b"\xda\x00\x02ab"])
def test_name_that_is_cut_to_that_of_another_member_is_cut_not_repeated(second: bytes) -> None:
    with pytest.raises(MsgpackRefused, match="cut"):
        check_msgpack(b"\x82\xa1a\x01" + second[:-1])


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_decode(raw: bytes) -> None:
    """What passes has the structure of msgpack: the decoder may refuse its values alone."""
    try:
        check_msgpack(raw)
    except (MsgpackRefused, RepeatedMember):
        return
    try:
        msgspec.msgpack.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError, ValueError, OverflowError) as error:
        assert "trailing" not in str(error) and "truncated" not in str(error)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "cut"),
        (b"\xc1", "begins no value"),
        (_encode({"a": 1}) + b"\x00", "follow"),
        (b"\xdd\xff\xff\xff\xff", "claims more"),
        (b"\xdf\xff\xff\xff\xff", "claims more"),
        (b"\xdb\xff\xff\xff\xffx", "cut"),
        (b"\x81\x01\x02", "not a text"),
        (b"\x91" * (MSGPACK_DEPTH_MAX + 1) + b"\x01", "deeper"),
        (_encode([0] * MSGPACK_VALUES_MAX), "more than"),
    ],
)
def test_bytes_that_are_no_value_are_refused(raw: bytes, reason: str) -> None:
    started_s = time.perf_counter()
    with pytest.raises(MsgpackRefused, match=reason):
        check_msgpack(raw)
    assert time.perf_counter() - started_s < 1


@pytest.mark.parametrize("second", [b"\xa1a", b"\xd9\x01a", b"\xda\x00\x01a", b"\xdb\x00\x00\x00\x01a"])
def test_repeated_member_is_named_in_any_writing(second: bytes) -> None:
    with pytest.raises(RepeatedMember) as caught:
        check_msgpack(b"\x91\x82\xa1a\x01" + second + b"\x02")
    assert caught.value.name == "a"


def test_deepest_value_passes() -> None:
    check_msgpack(b"\x91" * MSGPACK_DEPTH_MAX + b"\x01")
