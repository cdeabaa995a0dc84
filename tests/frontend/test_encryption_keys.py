"""Encryption keys of customers on the message path: envelopes, rotation, states, other accounts, the end of keys."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest

from frontend.crypto.envelope import Content, EnvelopeError, KeyNames, derived_data_key, key_names, open_envelope, seal
from frontend.crypto.keyring import Keyring, KeyringError, derived_key
from frontend.metadata.records import EncryptionKeyRecord
from frontend.queues.key_uses import EncryptionKeyUses, KeyUseCounts
from storage_nodes.protocol.records import decode_body
from tests.support.encrypted_queue import (
    KEY_ID,
    OTHER_KEY_ID,
    change_key,
    dead_letter,
    dead_letter_queue,
    encrypted,
    key_version,
    receive,
    send,
    stored,
)
from tests.support.frontend_plane import ACCOUNT, OTHER_ACCOUNT, QUEUE_URL, Installation

UUID = b"q" * 16
OPEN_TO_OTHERS = (
    '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"' + OTHER_ACCOUNT + '"},'
    '"Action":"sqs:*","Resource":"*"}]}'
)


# --- keys and envelopes ---


def test_version_of_an_encryption_key_opens_for_its_account_and_its_key_only() -> None:
    ring = Keyring(bytes(32))
    account_key, other = ring.new_account_key(ACCOUNT), ring.new_account_key(OTHER_ACCOUNT)
    key_id = uuid.UUID(KEY_ID).bytes
    wrapped = ring.new_encryption_key(ACCOUNT, account_key, key_id, 7)
    assert len(ring.unwrap_encryption_key(ACCOUNT, account_key, key_id, 7, wrapped)) == 32
    for arguments in (
        (ACCOUNT, account_key, key_id, 8, wrapped),
        (ACCOUNT, account_key, uuid.UUID(OTHER_KEY_ID).bytes, 7, wrapped),
        (OTHER_ACCOUNT, other, key_id, 7, wrapped),
        (ACCOUNT, ring.new_account_key(ACCOUNT), key_id, 7, wrapped),
    ):
        with pytest.raises(KeyringError):
            ring.unwrap_encryption_key(*arguments)
    with pytest.raises(KeyringError):  # one that was wrapped for another purpose
        ring.unwrap_data_key(ACCOUNT, account_key, key_id, 7, wrapped)


def test_derived_key_needs_the_encryption_key_and_the_data_key_and_the_period() -> None:
    one = derived_key(b"e" * 32, b"d" * 32, 300)
    others = [
        derived_key(b"f" * 32, b"d" * 32, 300),
        derived_key(b"e" * 32, b"c" * 32, 300),
        derived_key(b"e" * 32, b"d" * 32, 600),
        derived_key(b"d" * 32, b"e" * 32, 300),
    ]
    assert len({one, *others}) == 5 and len(one) == 32
    # The bytes that are stored under it depend on this: it never changes.
    assert one.hex() == "40030b0b3c5bd2dcdea0a80ad142ec7785d03a1b8de291238a6c56b90ed5c384"


@pytest.mark.parametrize("at", range(17, 29))
def test_envelope_of_a_derived_key_does_not_open_with_any_byte_of_its_key_names_changed(at: int) -> None:
    names = KeyNames(3, 7, 1_700_000_100)
    key = derived_data_key(names, b"k" * 32, ACCOUNT, UUID)
    envelope = seal(key, b"AKPS", Content("hello"), b"\x05")[1]
    assert key_names(envelope) == names
    assert open_envelope(key, envelope, b"\x05").content.body == "hello"
    changed = bytearray(envelope)
    changed[at] ^= 1
    with pytest.raises(EnvelopeError):
        open_envelope(key, bytes(changed), b"\x05")
    # Nor where the reader believes what the changed names say.
    forged = derived_data_key(key_names(bytes(changed)), b"k" * 32, ACCOUNT, UUID)
    with pytest.raises(EnvelopeError):
        open_envelope(forged, bytes(changed), b"\x05")


@pytest.mark.parametrize("length", [0, 1, 21, 29])
def test_envelope_that_is_cut_names_no_key(length: int) -> None:
    key = derived_data_key(KeyNames(3, 7, 300), b"k" * 32, ACCOUNT, UUID)
    envelope = seal(key, b"AKPS", Content("hello"))[1]
    with pytest.raises(EnvelopeError):
        key_names(envelope[:length])


# --- messages ---


async def test_message_of_a_queue_with_a_key_says_which_version_sealed_it(front: Installation) -> None:
    encrypted(front)
    assert (await send(front)).status == 200
    names = key_names(stored(front)[0])
    assert names == KeyNames(1, 7, int(front.clock.now_s) // 300 * 300)
    assert (await receive(front)).json["Messages"][0]["Body"] == "x"


async def test_data_key_is_reused_for_its_period_and_no_longer(front: Installation) -> None:
    encrypted(front, KmsDataKeyReusePeriodSeconds="60")
    front.clock.now_s = 1_700_000_040.0
    for step_s in (0, 59, 1, 60):
        front.clock.now_s += step_s
        assert (await send(front)).status == 200
    assert [key_names(envelope).since_s - 1_700_000_040 for envelope in stored(front)] == [0, 0, 60, 120]
    assert len((await receive(front)).json["Messages"]) == 4


async def test_message_sealed_before_a_rotation_opens_after_it_unwritten(front: Installation) -> None:
    record = encrypted(front)
    await send(front, "before")
    versions = front.metadata.encryption_keys[KEY_ID].versions
    change_key(front, versions=[*versions, key_version(front, record, 9)], version=2)
    before = stored(front)[0]
    await send(front, "after")
    assert [key_names(envelope).encryption_version for envelope in stored(front)] == [7, 9]
    assert stored(front)[0] == before
    bodies = [one["Body"] for one in (await receive(front)).json["Messages"]]
    assert bodies == ["before", "after"]


async def test_front_end_that_has_not_heard_of_a_rotation_yet_asks_again(front: Installation) -> None:
    """Another front end seals under the new version already."""
    record = encrypted(front)
    old = front.metadata.encryption_keys[KEY_ID]
    change_key(front, versions=[*old.versions, key_version(front, record, 9)], version=2)
    await send(front, "new")
    new = front.metadata.encryption_keys[KEY_ID]
    stale = True

    async def refreshed(account_id: str, key_id: str) -> EncryptionKeyRecord:
        nonlocal stale
        stale = False
        return new

    front.metadata.encryption_keys[KEY_ID] = old
    front.metadata.refresh_encryption_key = refreshed  # type: ignore[method-assign]  # of this one object
    assert (await receive(front)).json["Messages"][0]["Body"] == "new"
    assert not stale


async def test_message_opens_after_its_queue_was_given_another_key_or_none(front: Installation) -> None:
    first = encrypted(front)
    await send(front, "first")
    encrypted(front, key_id=OTHER_KEY_ID)
    both = [KEY_ID, OTHER_KEY_ID]
    record = front.metadata.queues[(ACCOUNT, "orders")]
    front.metadata.queues[(ACCOUNT, "orders")] = msgspec.structs.replace(record, encryption_keys=both)
    front.metadata.encryption_keys[OTHER_KEY_ID] = EncryptionKeyRecord(
        OTHER_KEY_ID, ACCOUNT, "enabled", [key_version(front, first, 8, OTHER_KEY_ID)], 1
    )
    await send(front, "second")
    attributes = {name: value for name, value in record.attributes.items() if name != "KmsMasterKeyId"}
    front.metadata.queues[(ACCOUNT, "orders")] = msgspec.structs.replace(
        record, attributes=attributes, encryption_key="", encryption_keys=both
    )
    await send(front, "third")
    assert [key_names(envelope).encryption_version for envelope in stored(front)] == [7, 8, 0]
    bodies = [one["Body"] for one in (await receive(front)).json["Messages"]]
    assert bodies == ["first", "second", "third"]


async def test_dead_letter_opens_in_its_dead_letter_queue_after_a_rotation(front: Installation) -> None:
    source = encrypted(front)
    await send(front, "dead")
    dead_letter_queue(front, source)
    await dead_letter(front)
    versions = front.metadata.encryption_keys[KEY_ID].versions
    change_key(front, versions=[*versions, key_version(front, source, 9)], version=2)
    answer = await receive(front, url=QUEUE_URL.replace("orders", "dead"))
    assert answer.json["Messages"][0]["Body"] == "dead"


async def test_dead_letter_under_a_disabled_key_is_refused_and_kept(front: Installation) -> None:
    source = encrypted(front)
    await send(front, "dead")
    dead_letter_queue(front, source)
    await dead_letter(front)
    url = QUEUE_URL.replace("orders", "dead")
    change_key(front, state="disabled", version=2)
    assert (await receive(front, url=url)).error == "KmsDisabled"
    change_key(front, state="enabled", version=3)
    # It was given back at once, and the receive that was refused is not counted.
    answer = (await front.sqs("ReceiveMessage", {"QueueUrl": url, "AttributeNames": ["All"]})).json["Messages"][0]
    assert answer["Body"] == "dead"


async def test_message_of_a_group_waits_for_the_one_before_it_whose_key_is_disabled(front: Installation) -> None:
    """A queue was given another key; the first key is disabled then. The order within the group holds."""
    front.add_queue("orders.fifo", (2,))
    record = encrypted(front, "orders.fifo")
    url = QUEUE_URL + ".fifo"

    async def send_to(group: str, body: str) -> None:
        asked = {"QueueUrl": url, "MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": body}
        assert (await front.sqs("SendMessage", asked)).status == 200

    await send_to("g", "g1")
    front.metadata.encryption_keys[OTHER_KEY_ID] = EncryptionKeyRecord(
        OTHER_KEY_ID, ACCOUNT, "enabled", [key_version(front, record, 8, OTHER_KEY_ID)], 1
    )
    other = encrypted(front, "orders.fifo", OTHER_KEY_ID)
    front.metadata.queues[(ACCOUNT, "orders.fifo")] = msgspec.structs.replace(
        other, encryption_keys=[KEY_ID, OTHER_KEY_ID]
    )
    await send_to("g", "g2")
    await send_to("h", "h1")
    change_key(front, state="disabled", version=2)
    assert [one["Body"] for one in (await receive(front, url=url)).json["Messages"]] == ["h1"]
    change_key(front, state="enabled", version=3)
    assert [one["Body"] for one in (await receive(front, url=url)).json["Messages"]] == ["g1", "g2"]


# --- callers of other accounts ---


async def test_caller_of_another_account_needs_the_key_to_be_shared_with_it(front: Installation) -> None:
    encrypted(front, Policy=OPEN_TO_OTHERS)
    await send(front)
    for answer in (await send(front, key=front.other_key), await receive(front, key=front.other_key)):
        assert answer.error == "KmsAccessDenied"
    # Nor is it told in which state the key is.
    change_key(front, state="disabled", version=2)
    assert (await send(front, key=front.other_key)).error == "KmsAccessDenied"
    change_key(front, state="enabled", shared_accounts=[OTHER_ACCOUNT], version=3)
    assert (await send(front, key=front.other_key)).status == 200
    assert len((await receive(front, key=front.other_key)).json["Messages"]) == 2


async def test_caller_of_another_account_hears_nothing_of_an_older_key_that_is_disabled(front: Installation) -> None:
    """The queue has another key by now, or none: its messages are under the older one all the same."""
    record = encrypted(front, Policy=OPEN_TO_OTHERS)
    await send(front)
    change_key(front, state="disabled", version=2)
    attributes = {name: value for name, value in record.attributes.items() if name != "KmsMasterKeyId"}
    front.metadata.queues[ACCOUNT, "orders"] = msgspec.structs.replace(
        record, attributes=attributes, encryption_key="", version=record.version + 1
    )
    refused = await receive(front, key=front.other_key)
    assert refused.error == "KmsAccessDenied" and KEY_ID not in refused.body.decode()
    assert (await receive(front)).error == "KmsDisabled"
    change_key(front, state="disabled", shared_accounts=[OTHER_ACCOUNT], version=3)
    assert (await receive(front, key=front.other_key)).error == "KmsDisabled"


# --- the end of keys ---


async def test_ciphertext_does_not_open_without_the_encryption_key_or_without_the_data_key(
    front: Installation,
) -> None:
    """All that a database and its nodes still hold is tried, with the master key at hand: grants of the data key
    without the encryption key, the encryption key without the data key."""
    record = encrypted(front)
    await send(front, "secret")
    envelope, names = stored(front)[0], key_names(stored(front)[0])
    ring, owner = front.keyring, (ACCOUNT, record.account_key_wrapped)
    data_key = ring.unwrap_data_key(*owner, record.queue_uuid, 1, record.data_keys[0].wrapped)
    version = front.metadata.encryption_keys[KEY_ID].versions[0]
    encryption_key = ring.unwrap_encryption_key(*owner, uuid.UUID(KEY_ID).bytes, 7, version.wrapped)
    account_key = ring.unwrap_account_key(*owner)
    body = decode_body(front.storage.messages(1)[0].body)
    for left in (
        data_key,
        encryption_key,
        account_key,
        derived_key(account_key, data_key, names.since_s),
        derived_key(encryption_key, account_key, names.since_s),
        derived_key(bytes(32), data_key, names.since_s),
        derived_key(encryption_key, bytes(32), names.since_s),
    ):
        with pytest.raises(EnvelopeError):
            open_envelope(derived_data_key(names, left, ACCOUNT, record.queue_uuid), envelope, _size(body))
    whole = derived_data_key(names, derived_key(encryption_key, data_key, names.since_s), ACCOUNT, record.queue_uuid)
    assert open_envelope(whole, envelope, _size(body)).content.body == "secret"


async def test_messages_of_a_deleted_key_are_left_and_others_are_given(front: Installation) -> None:
    """Unlike those of a disabled key they will never open: no other message waits for them."""
    record = encrypted(front)
    await send(front, "lost")
    del front.metadata.encryption_keys[KEY_ID]
    attributes = {name: value for name, value in record.attributes.items() if name != "KmsMasterKeyId"}
    front.metadata.queues[(ACCOUNT, "orders")] = msgspec.structs.replace(
        record, attributes=attributes, encryption_key=""
    )
    await send(front, "kept")
    assert [one["Body"] for one in (await receive(front)).json["Messages"]] == ["kept"]


async def test_key_that_is_gone_is_looked_for_once_and_not_for_every_message(front: Installation) -> None:
    encrypted(front)
    for body in ("a", "b", "c"):
        await send(front, body)
    del front.metadata.encryption_keys[KEY_ID]
    record = front.metadata.queues[(ACCOUNT, "orders")]
    front.metadata.queues[(ACCOUNT, "orders")] = msgspec.structs.replace(record, attributes={}, encryption_key="")
    for _ in range(2):
        assert "Messages" not in (await receive(front, 1)).json
        assert len((await front.rest("/v1/queues/orders/messages/peek")).json["messages"]) == 3
    assert front.metadata.lookups.count(("refresh", ACCOUNT, "orders")) == 1


def _size(body: Any) -> bytes:
    from storage_nodes.protocol.usage import size_field

    return size_field(body.key)


# --- uses ---


async def test_uses_of_a_key_are_counted_by_message(front: Installation) -> None:
    encrypted(front)
    entries = [{"Id": str(one), "MessageBody": "x"} for one in range(3)]
    await front.sqs("SendMessageBatch", {"QueueUrl": QUEUE_URL, "Entries": entries})
    await send(front)
    await receive(front, 2)
    assert front.plane.queues.uses.take(10) == {KEY_ID: KeyUseCounts(4, 2)}
    assert front.plane.queues.uses.take(10) == {}


async def test_message_is_counted_once_where_another_of_the_same_receive_does_not_open(front: Installation) -> None:
    encrypted(front)
    await send(front, "opens")
    await send(front, "damaged")
    stored = front.storage.messages(1)[1]
    front.storage.replace_body(1, stored.offset, stored.body[:-8] + bytes(8))
    assert [one["Body"] for one in (await receive(front)).json["Messages"]] == ["opens"]
    assert front.plane.queues.uses.take(10) == {KEY_ID: KeyUseCounts(2, 1)}


def test_uses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from frontend.queues import key_uses

    monkeypatch.setattr(key_uses, "KEY_USES_HELD_MAX", 1)
    uses = EncryptionKeyUses()
    uses.note("a", 1, 0)
    uses.note("b", 1, 0)
    uses.note("a", 0, 1)
    assert uses.take(10) == {"a": KeyUseCounts(1, 1)}
