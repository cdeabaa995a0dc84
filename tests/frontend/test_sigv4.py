"""SigV4 (RELIABILITY S2 to S8): botocore's signer is the oracle; every mutation is refused."""

from __future__ import annotations

import json

import pytest

from frontend.authn.authenticator import Authenticator
from frontend.limits import CLOCK_SKEW_S_MAX
from tests.support.frontend_plane import ACCOUNT, HOST, QUEUE_URL, REGION, Installation, Reply, presign, sign

BODY = json.dumps({"QueueUrl": QUEUE_URL, "MessageBody": "hello"}).encode()
SEND = "AmazonSQS.SendMessage"


async def send_with(front: Installation, headers: dict[str, str], body: bytes = BODY, path: str = "/") -> Reply:
    return await front.call("POST", path, headers, body)


def signed(front: Installation, path: str = "/", body: bytes = BODY) -> dict[str, str]:
    return sign(front.key, "POST", path, body, SEND, front.clock.now_s)


@pytest.mark.parametrize("path", ["/", f"/{ACCOUNT}/orders", "/?a=1&b=x%20y&a=0&empty=", f"/{ACCOUNT}/orders?z=%2F~"])
async def test_signature_of_botocore_is_accepted(front: Installation, path: str) -> None:
    assert (await send_with(front, signed(front, path), path=path)).status == 200


async def test_signature_over_extra_headers_with_spaces_is_accepted(front: Installation) -> None:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    from tests.support.frontend_plane import at_time

    headers = {"Host": HOST, "Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": SEND, "X-Note": "a   b  c "}
    request = AWSRequest("POST", f"http://{HOST}/", data=BODY, headers=headers)
    with at_time(front.clock.now_s):
        SigV4Auth(Credentials(front.key.access_key_id, front.key.secret_access_key), "sqs", REGION).add_auth(request)
    assert (await send_with(front, dict(request.headers.items()))).status == 200


def _swap(headers: dict[str, str], old: str, new: str) -> None:
    assert old in headers["Authorization"]
    headers["Authorization"] = headers["Authorization"].replace(old, new)


MUTATIONS = {
    "body": lambda headers: None,
    "date": lambda headers: headers.update({"X-Amz-Date": "20231114T221321Z"}),
    "target": lambda headers: headers.update({"X-Amz-Target": "AmazonSQS.SendMessage "}),
    "host": lambda headers: headers.update({"Host": "localhost:9325"}),
    "region": lambda headers: _swap(headers, "us-east-1", "us-east-2"),
    "service": lambda headers: _swap(headers, "/sqs/", "/sns/"),
    "signed headers order": lambda headers: _swap(headers, "content-type;host", "host;content-type"),
    "unsigned content type": lambda headers: _swap(headers, "content-type;host", "host"),
    "last bit": lambda headers: headers.update({"Authorization": _flip(headers["Authorization"], -1)}),
    "first bit": lambda headers: headers.update({"Authorization": _flip(headers["Authorization"], -64)}),
}


def _flip(text: str, place: int) -> str:
    at = len(text) + place
    return text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]


@pytest.mark.parametrize("part", MUTATIONS)
async def test_signature_with_one_part_changed_is_refused_with_constant_words(front: Installation, part: str) -> None:
    """S2: 403, and nothing that tells which part differed."""
    headers = signed(front)
    MUTATIONS[part](headers)
    reply = await send_with(front, headers, BODY + b" " if part == "body" else BODY)
    known = await send_with(front, {**signed(front), "Authorization": _flip(signed(front)["Authorization"], -1)})
    if part == "target":
        assert reply.error == "UnknownOperationException"
    else:
        assert (reply.status, reply.error) == (403, "SignatureDoesNotMatch")
        if part == "region":  # no secret: the same for everybody, whether the key exists or not
            assert reply.json["message"] == "Credential should be scoped to a valid region."
        else:
            assert reply.body == known.body
    assert front.storage.count() == 0


async def test_method_and_query_are_part_of_the_signature(front: Installation) -> None:
    assert (await send_with(front, signed(front), path="/?x=1")).error == "SignatureDoesNotMatch"
    assert (await send_with(front, signed(front, "/?x=1"), path="/?x=2")).error == "SignatureDoesNotMatch"
    get = sign(front.key, "GET", "/", BODY, SEND, front.clock.now_s)
    assert (await send_with(front, get)).error == "SignatureDoesNotMatch"


async def test_unknown_key_id_is_refused(front: Installation) -> None:
    headers = signed(front)
    _swap(headers, front.key.access_key_id, "AKPSAAAAAAAAAAAAAAAA")
    reply = await send_with(front, headers)
    assert (reply.status, reply.error) == (403, "InvalidClientTokenId")


@pytest.mark.parametrize("key_id", ["AKIAXXXX", "test", "fake_key", "A" * 64])
async def test_key_id_of_another_length_is_one_of_no_key(front: Installation, key_id: str) -> None:
    headers = signed(front)
    _swap(headers, front.key.access_key_id, key_id)
    reply = await send_with(front, headers)
    assert (reply.status, reply.error) == (403, "InvalidClientTokenId")


@pytest.mark.parametrize("key_id", ["", "a-b", "A" * 65, "ä"])
async def test_what_is_no_key_id_is_a_malformed_credential(front: Installation, key_id: str) -> None:
    headers = signed(front)
    _swap(headers, f"={front.key.access_key_id}/", f"={key_id}/")
    assert (await send_with(front, headers)).error == "IncompleteSignature"


async def test_terminator_of_scope_changed_is_refused(front: Installation) -> None:
    headers = signed(front)
    _swap(headers, "aws4_request", "aws5_request")
    assert (await send_with(front, headers)).error == "IncompleteSignature"


@pytest.mark.parametrize(("offset_s", "passes"), [(-899, True), (899, True), (-901, False), (901, False)])
async def test_signature_time_is_bound_to_fifteen_minutes(front: Installation, offset_s: int, passes: bool) -> None:
    """S5."""
    assert CLOCK_SKEW_S_MAX == 900
    headers = sign(front.key, "POST", "/", BODY, SEND, front.clock.now_s + offset_s)
    reply = await send_with(front, headers)
    assert reply.status == 200 if passes else (reply.status, reply.error) == (400, "RequestExpired")


async def test_amz_header_that_is_not_signed_is_refused(front: Installation) -> None:
    """S3."""
    reply = await send_with(front, {**signed(front), "X-Amz-Extra": "1"})
    assert (reply.status, reply.error) == (403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("name", ["X-Rate%b", "X-%s%%", "X-Amzn-Trace"])
async def test_names_of_signed_headers_may_have_any_sign(front: Installation, name: str) -> None:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    from tests.support.frontend_plane import at_time

    given = {"Host": HOST, "Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": SEND, name: "%s %b"}
    request = AWSRequest("POST", f"http://{HOST}/", data=BODY, headers=given)
    with at_time(front.clock.now_s):
        SigV4Auth(Credentials(front.key.access_key_id, front.key.secret_access_key), "sqs", REGION).add_auth(request)
    headers = dict(request.headers.items())
    assert (await send_with(front, headers)).status == 200
    assert (await send_with(front, {**headers, "x-amz-more": "x"})).error == "SignatureDoesNotMatch"
    assert (await send_with(front, {**headers, name: "other"})).error == "SignatureDoesNotMatch"


async def test_host_that_is_not_signed_is_refused(front: Installation) -> None:
    headers = signed(front)
    _swap(headers, ";host;", ";")
    assert (await send_with(front, headers)).error == "IncompleteSignature"


@pytest.mark.parametrize(
    ("claimed", "passes"),
    [("right", True), ("0" * 64, False), ("UNSIGNED-PAYLOAD", False), ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", False)],
)
async def test_body_hash_header_must_be_the_hash_of_the_body(front: Installation, claimed: str, passes: bool) -> None:
    """S4, S7: also when the claim itself is properly signed."""
    import hashlib

    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    from tests.support.frontend_plane import REGION, at_time

    value = hashlib.sha256(BODY).hexdigest() if claimed == "right" else claimed
    headers = {
        "Host": HOST,
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": SEND,
        "X-Amz-Content-SHA256": value,
    }
    request = AWSRequest("POST", f"http://{HOST}/", data=BODY, headers=headers)
    with at_time(front.clock.now_s):
        SigV4Auth(Credentials(front.key.access_key_id, front.key.secret_access_key), "sqs", REGION).add_auth(request)
    reply = await send_with(front, dict(request.headers.items()))
    assert reply.status == 200 if passes else reply.error == "SignatureDoesNotMatch"


async def test_presigned_query_is_accepted_until_it_expires(front: Installation) -> None:
    path, headers = presign(front.key, "POST", "/", BODY, SEND, front.clock.now_s, expires_s=60)
    assert (await send_with(front, headers, path=path)).status == 200
    front.clock.now_s += 60
    assert (await send_with(front, headers, path=path)).status == 200
    front.clock.now_s += 1
    assert (await send_with(front, headers, path=path)).error == "RequestExpired"


async def test_presigned_query_with_changed_parts_is_refused(front: Installation) -> None:
    path, headers = presign(front.key, "POST", "/", BODY, SEND, front.clock.now_s)
    assert (await send_with(front, headers, BODY + b" ", path)).error == "SignatureDoesNotMatch"
    assert (await send_with(front, headers, path=path + "&x=1")).error == "SignatureDoesNotMatch"
    assert (await send_with(front, headers, path=path.replace("Expires=3600", "Expires=3601"))).status == 403
    assert (await send_with(front, headers, path=path.replace("Expires=3600", "Expires=604801"))).status == 400
    assert (await send_with(front, headers, path=path.partition("&X-Amz-Signature")[0])).error == "IncompleteSignature"
    assert (await send_with(front, headers, path=path + "&X-Amz-Signature=" + "0" * 64)).error == "IncompleteSignature"
    assert front.storage.count() == 0


async def test_both_forms_at_once_are_refused(front: Installation) -> None:
    """S4."""
    path, headers = presign(front.key, "POST", "/", BODY, SEND, front.clock.now_s)
    reply = await send_with(front, {**signed(front), **headers}, path=path)
    assert reply.error == "IncompleteSignature"


async def test_session_token_is_refused(front: Installation) -> None:
    """S6: none are issued."""
    assert (await send_with(front, {**signed(front), "X-Amz-Security-Token": "x"})).error == "InvalidClientTokenId"


async def test_missing_and_malformed_authorization_are_told_apart(front: Installation) -> None:
    """S8."""
    headers = signed(front)
    bare = {name: value for name, value in headers.items() if name != "Authorization"}
    reply = await send_with(front, bare)
    assert (reply.status, reply.error) == (403, "MissingAuthenticationToken")
    partial = "AWS4-HMAC-SHA256 Credential=x, Signature=" + "0" * 64
    for text in ("", "AWS4-HMAC-SHA256", partial, "AWS4-HMAC-SHA256 " + "A" * 5000):
        reply = await send_with(front, {**bare, "Authorization": text})
        assert (reply.status, reply.error) == (400, "IncompleteSignature")
    for text in ("Basic eDp5", "AWS x:y", "A" * 5000):
        reply = await send_with(front, {**bare, "Authorization": text})
        assert (reply.status, reply.error) == (400, "InvalidSecurity")


async def test_headers_are_remembered_once_their_signature_matched(front: Installation) -> None:
    """What anyone can send fills no memory."""
    remembered = front.plane.authenticator._credentials
    good = signed(front)
    wrong = {**good, "Authorization": _flip(good["Authorization"], -1)}
    for number in range(20):
        refused = {**wrong, "Authorization": wrong["Authorization"].replace("Credential=AK", f"Credential=AK{number}")}
        assert (await send_with(front, refused)).status in (400, 403)
    assert (await send_with(front, wrong)).status == 403 and not remembered
    for _ in range(3):
        assert (await send_with(front, good)).status == 200
    assert len(remembered) == 1


async def test_repeated_authorization_header_is_refused(front: Installation) -> None:
    pairs = [(name.lower().encode(), value.encode()) for name, value in signed(front).items()]
    twice = [*pairs, (b"authorization", b"AWS4-HMAC-SHA256 x")]
    assert (await front.call("POST", "/", twice, BODY)).error == "InvalidParameterValueException"


async def test_switched_off_and_expired_keys_are_refused(front: Installation) -> None:
    off = front.add_key(ACCOUNT, active=False)
    expired = front.add_key(ACCOUNT, expires_at_ms=int(front.clock.now_s * 1000))
    for key in (off, expired):
        headers = sign(key, "POST", "/", BODY, SEND, front.clock.now_s)
        assert (await send_with(front, headers)).error == "InvalidClientTokenId"


async def test_key_that_changes_loses_its_old_secret(front: Installation) -> None:
    """The derived signing key is cached; a newer version of the record must not be served by it."""
    assert (await send_with(front, signed(front))).status == 200
    record = front.metadata.keys[front.key.access_key_id]
    import msgspec

    sealed = front.keyring.seal_secret(record.account_id, record.access_key_id, "another secret")
    front.metadata.keys[front.key.access_key_id] = msgspec.structs.replace(record, secret_sealed=sealed, version=2)
    assert (await send_with(front, signed(front))).error == "SignatureDoesNotMatch"


@pytest.mark.parametrize("kind", ["signature", "bearer"])
async def test_key_whose_row_is_moved_to_another_account_opens_nothing_there(front: Installation, kind: str) -> None:
    import msgspec

    record = front.metadata.keys[front.key.access_key_id]
    moved = msgspec.structs.replace(record, account_id="999999999999")
    front.metadata.keys[front.key.access_key_id] = moved
    if kind == "signature":
        reply = await send_with(front, signed(front))
        assert (reply.status, reply.error) == (403, "SignatureDoesNotMatch")
    else:
        bearer = {"authorization": f"Bearer {front.key.bearer_token}"}
        reply = await front.call("POST", "/v1/queues/orders/messages/receive", bearer, b"{}")
        assert reply.status == 401


async def test_cold_and_unreachable_metadata(front: Installation) -> None:
    front.metadata.cold = True
    assert (await send_with(front, signed(front))).status == 200
    front.metadata.down = True
    reply = await send_with(front, signed(front))
    assert (reply.status, reply.error) == (503, "ServiceUnavailable")
    assert int(reply.headers["retry-after"]) >= 1


async def test_requests_may_be_signed_for_every_region_that_is_served(
    front: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    front.plane.authenticator = Authenticator(
        front.metadata, front.keyring, front.pepper, (REGION, "eu-west-1"), front.clock
    )
    for region, status in ((REGION, 200), ("eu-west-1", 200), ("eu-west-2", 403)):
        monkeypatch.setattr("tests.support.frontend_plane.REGION", region)
        reply = await front.sqs("GetQueueAttributes", {"QueueUrl": QUEUE_URL, "AttributeNames": ["QueueArn"]})
        assert reply.status == status
        if status == 200:
            assert reply.json["Attributes"]["QueueArn"].startswith(f"arn:aws:sqs:{REGION}:")
        else:
            assert reply.json["message"] == "Credential should be scoped to a valid region."
            target = "/v1/queues/orders/messages/receive"
            headers = sign(front.key, "POST", target, b"{}", "", front.clock.now_s, "application/json")
            told = await front.call("POST", target, headers, b"{}")
            assert told.status == 401 and told.json["code"] == "signature-does-not-match"
            assert told.json["detail"].endswith(f"Sign it for eu-west-1 or {REGION}.")
