"""One message, two wires: what SQS and REST read of it is the same `OutgoingMessage`."""

from __future__ import annotations

from typing import Any

import pytest

from frontend.errors import RequestError
from frontend.messages.due_time import DueTime, due_time_of, read_due_time, time_attributes
from frontend.messages.outgoing import OutgoingMessage
from frontend.rest import message_form as rest_form
from frontend.rest.message_form import AttributeJson, MessageJson
from frontend.sqs import message_form as sqs_form
from frontend.sqs.requests import AttributeIn, MessageFields
from storage_nodes.model import Acks


def by_rest(acks_of_batch: str | None = None, **members: Any) -> OutgoingMessage:
    return rest_form.read_message(rest_form.check_message(MessageJson(body="hello", **members), acks_of_batch))


def by_sqs(**attributes: tuple[str, str]) -> OutgoingMessage:
    given = {name: AttributeIn(data_type=kind, string_value=value) for name, (kind, value) in attributes.items()}
    return sqs_form.read_message(
        MessageFields(
            message_body="hello",
            message_attributes=given,
            delay_seconds=5,
            message_group_id="g",
            message_deduplication_id="d",
        )
    )


def test_members_of_rest_and_attributes_of_sqs_make_the_same_message() -> None:
    rest = by_rest(
        attributes={"kind": AttributeJson("x")},
        delay_seconds=5,
        group="g",
        deduplication_id="d",
        deliver_at_ms=1_700_000_000_000,
        tag="red",
        priority=2,
        acks="all",
    )
    sqs = by_sqs(
        **{
            "kind": ("String", "x"),
            "Penstock.DeliverAt": ("Number", "1700000000000"),
            "Penstock.Tag": ("String", "red"),
            "Penstock.Priority": ("Number", "2"),
            "Penstock.Acks": ("String", "all"),
        }
    )
    assert rest.due == DueTime(1_700_000_000_000, is_delay=False) and rest.acks is Acks.ALL and rest.tag == b"red"
    acks = sqs.attributes.pop("Penstock.Acks")
    sqs.attributes_bytes -= sum(map(len, ("Penstock.Acks", *acks)))
    assert rest == sqs


def test_acks_of_a_rest_batch_count_where_a_message_has_none() -> None:
    assert by_rest("leader").acks is Acks.LEADER
    assert by_rest("leader", acks="all").acks is Acks.ALL
    assert by_rest().acks is None


def outcome(deliver_at_ms: int | None, delay_ms: int | None, as_text: bool) -> DueTime | str | None:
    attributes = time_attributes(deliver_at_ms, delay_ms)
    try:
        return read_due_time(attributes) if as_text else due_time_of(deliver_at_ms, delay_ms, attributes)
    except RequestError as error:
        return error.code  # the words are those of the wire


@pytest.mark.parametrize("delay_ms", [None, -1, -1_500, 0, 1, 1_500, 10**11 - 1, 10**11])
@pytest.mark.parametrize("deliver_at_ms", [None, -1, 0, 1, 10**15 - 1, 10**15])
def test_numbers_and_their_attributes_say_the_same_due_time(deliver_at_ms: int | None, delay_ms: int | None) -> None:
    """What is sent as a number can be sent again as the attribute that its receiver saw."""
    assert outcome(deliver_at_ms, delay_ms, as_text=False) == outcome(deliver_at_ms, delay_ms, as_text=True)
