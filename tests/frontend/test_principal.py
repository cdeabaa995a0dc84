"""The one principal of both planes: its kinds, its ARN, and what of it travels."""

from __future__ import annotations

import json

import msgspec
import pytest

from frontend.authn.principal import Principal, PrincipalKind, operator, person, service
from frontend.authn.rights import rights_of
from frontend.authn.vouching import (
    MAC_HEADER,
    PRINCIPAL_HEADER,
    PrincipalError,
    _Claim,
    claim_of,
    principal_of_claim,
    verify_principal,
    vouch,
)
from frontend.authz import CallerKind, evaluate
from frontend.metadata.records import PolicyRecord

ACCOUNT = "123456789012"
KEY = b"k" * 32
NOW_MS = 1_800_000_000_000
ALL = json.dumps({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}})
RESTRICTED = Principal(
    ACCOUNT,
    "AKPS1",
    7,
    "192.0.2.7",
    True,
    rights_of(ACCOUNT, "AKPS1", [PolicyRecord("own", ALL)], {"team": "shop"}),
    "boto3",
    "https://example.test",
    request_id="r-1",
)
EVERYBODY = [
    (Principal(ACCOUNT, "AKPS1"), PrincipalKind.KEY, f"arn:aws:iam::{ACCOUNT}:root"),
    (RESTRICTED, PrincipalKind.KEY, f"arn:aws:iam::{ACCOUNT}:user/key/AKPS1"),
    (person(ACCOUNT, "ann"), PrincipalKind.PERSON, f"arn:aws:iam::{ACCOUNT}:user/person/ann"),
    (person(ACCOUNT, "op", acting_as="ann"), PrincipalKind.OPERATOR, f"arn:aws:iam::{ACCOUNT}:user/person/ann"),
    (operator(), PrincipalKind.OPERATOR, None),
    (service("lifecycle"), PrincipalKind.SERVICE, None),
]


def is_allowed(who: Principal) -> bool:
    arn = f"arn:aws:sqs:us-east-1:{ACCOUNT}:orders"
    return evaluate(who.asks("sqs:SendMessage", arn, NOW_MS, "us-east-1"), who.policy).allowed


@pytest.mark.parametrize(("who", "kind", "arn"), EVERYBODY)
def test_principal_has_a_kind_and_the_arn_that_policies_see(
    who: Principal, kind: PrincipalKind, arn: str | None
) -> None:
    assert (who.kind, who.arn) == (kind, arn)
    request = who.asks("sqs:SendMessage", f"arn:aws:sqs:us-east-1:{ACCOUNT}:orders", NOW_MS, "us-east-1")
    assert request.caller.arn == arn
    assert (request.source_ip, request.secure_transport) == (who.source_ip or None, who.is_secure)
    assert (request.user_agent, request.referer) == (who.user_agent, who.referer)


def test_only_a_key_without_policies_is_its_account() -> None:
    """`rights` None would be everything: nobody but such a key is made with it."""
    for who, _, _ in EVERYBODY:
        assert (who.caller.kind is CallerKind.ROOT) == (who == Principal(ACCOUNT, "AKPS1")), who
        assert is_allowed(who) == (who.name == "AKPS1"), who


@pytest.mark.parametrize("who", [who for who, _, _ in EVERYBODY])
def test_what_travels_is_the_principal_without_its_rights(who: Principal) -> None:
    headers = dict(vouch(KEY, "POST", b"/p", b"{}", who, NOW_MS))
    claim, mac = headers[PRINCIPAL_HEADER], headers[MAC_HEADER]
    found = verify_principal(KEY, "POST", b"/p", claim, mac, b"{}", NOW_MS)
    assert found._replace(rights=None) == who._replace(rights=None, key_version=0)
    assert not is_allowed(found), "until its rights are read it may do nothing"


def test_claim_has_all_members_but_those_that_stay() -> None:
    told = {field.name for field in msgspec.structs.fields(_Claim)}
    assert told == set(Principal._fields) - {"rights", "key_version"} | {"issued_ms"}


@pytest.mark.parametrize("age_ms", [1_001, -1_001])
def test_claim_is_good_for_a_while(age_ms: int) -> None:
    claim = claim_of(RESTRICTED, NOW_MS)
    assert principal_of_claim(claim, NOW_MS + 1_000, 1_000).name == "AKPS1"
    with pytest.raises(PrincipalError):
        principal_of_claim(claim, NOW_MS + age_ms, 1_000)
