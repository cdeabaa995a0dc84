"""Queue names, attributes and tags, against the ranges and refusals of the SQS reference."""

from __future__ import annotations

import json

import pytest

from api import limits
from api.queues import attributes as rules
from api.queues.attributes import QueueProblem

ARN = "arn:aws:sqs:us-east-1:123456789012:dead"


def check_new(given: object, name: str = "orders") -> dict[str, str]:
    return rules.check_new(given, name)


def code_of(call: object, *args: object) -> str:
    with pytest.raises(QueueProblem) as caught:
        call(*args)  # type: ignore[operator]
    return caught.value.code


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 80])
def test_name_allowed_passes(name: str) -> None:
    assert rules.check_name(name) == name


@pytest.mark.parametrize("name", ["x" * 81, "a b", "a.b", "ü", "a/b", "a\n", ".fifo"])
def test_name_with_bad_characters_or_length_is_refused(name: str) -> None:
    assert code_of(rules.check_name, name) == "InvalidParameterValueException"


@pytest.mark.parametrize("name", [None, "", 7])
def test_name_missing_is_refused(name: object) -> None:
    assert code_of(rules.check_name, name) == "MissingRequiredParameterException"


@pytest.mark.parametrize("name", ["a.fifo", "x" * 75 + ".fifo"])
def test_name_of_a_fifo_queue_counts_its_suffix(name: str) -> None:
    assert rules.check_name(name) == name
    assert code_of(rules.check_name, "x" + "x" * 75 + ".fifo") == "InvalidParameterValueException"


def test_fifo_suffix_and_attribute_come_together() -> None:
    assert check_new({"FifoQueue": "true"}, "a.fifo") == {"FifoQueue": "true"}
    assert code_of(check_new, {}, "a.fifo") == "InvalidParameterValueException"
    assert code_of(check_new, {"FifoQueue": "true"}, "a") == "InvalidParameterValueException"
    assert code_of(check_new, {"FifoQueue": "false"}, "a.fifo") == "InvalidAttributeValue"
    assert code_of(check_new, {"FifoQueue": "false"}, "a") == "InvalidAttributeName"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("ContentBasedDeduplication", ("true", "False"), ("", "yes")),
        ("DeduplicationScope", ("queue", "messageGroup"), ("", "group", "Queue")),
        ("FifoThroughputLimit", ("perQueue",), ("", "perGroup")),
    ],
)
def test_fifo_attribute_takes_its_values_on_fifo_queues_only(
    name: str, good: tuple[str, ...], bad: tuple[str, ...]
) -> None:
    for value in good:
        assert check_new({"FifoQueue": "true", name: value}, "a.fifo")
        assert code_of(check_new, {name: value}) == "InvalidAttributeName"
        assert code_of(rules.check_change, {name: value}, "a") == "InvalidAttributeName"
    for value in bad:
        assert code_of(check_new, {"FifoQueue": "true", name: value}, "a.fifo") == "InvalidAttributeValue"


def test_throughput_per_group_needs_deduplication_per_group() -> None:
    per_group = {"FifoQueue": "true", "FifoThroughputLimit": "perMessageGroupId"}
    assert code_of(check_new, per_group, "a.fifo") == "InvalidAttributeValue"
    assert check_new({**per_group, "DeduplicationScope": "messageGroup"}, "a.fifo")


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("DelaySeconds", 0, 900),
        ("MaximumMessageSize", 1_024, 1_048_576),
        ("MessageRetentionPeriod", 60, 1_209_600),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
        ("VisibilityTimeout", 0, 43_200),
        ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
    ],
)
def test_integer_attribute_keeps_its_range(name: str, low: int, high: int) -> None:
    assert check_new({name: str(low)}) == {name: str(low)}
    assert check_new({name: f"0{high}"}) == {name: str(high)}
    for bad in (str(low - 1), str(high + 1), "", "1.5", "ten", "１"):
        assert code_of(check_new, {name: bad}) == "InvalidAttributeValue"


@pytest.mark.parametrize("name", ["Nope", "QueueArn", "CreatedTimestamp", "ContentBasedDeduplication", "All", ""])
def test_unknown_or_read_only_attribute_is_refused_by_name(name: str) -> None:
    assert code_of(check_new, {name: "true"}) == "InvalidAttributeName"


def test_attributes_that_are_no_string_map_are_refused() -> None:
    for bad in ([], "x", {"DelaySeconds": 5}, {"DelaySeconds": None}):
        assert code_of(check_new, bad) == "InvalidParameterValueException"


def test_redrive_policy_is_stored_in_normal_form() -> None:
    given = json.dumps({"maxReceiveCount": "3", "deadLetterTargetArn": ARN})
    checked = check_new({"RedrivePolicy": given})
    assert json.loads(checked["RedrivePolicy"]) == {"deadLetterTargetArn": ARN, "maxReceiveCount": 3}
    redrive = rules.redrive_of(checked)
    assert redrive is not None
    assert (redrive.target.account_id, redrive.target.name, redrive.receives_max) == ("123456789012", "dead", 3)


@pytest.mark.parametrize("missing", ["deadLetterTargetArn", "maxReceiveCount"])
def test_redrive_policy_needs_both_members(missing: str) -> None:
    policy = {"deadLetterTargetArn": ARN, "maxReceiveCount": 3}
    del policy[missing]
    with pytest.raises(rules.QueueProblem, match=f"does not contain mandatory attribute: {missing}"):
        check_new({"RedrivePolicy": json.dumps(policy)})


@pytest.mark.parametrize(
    "policy",
    [
        "not json",
        "[]",
        "[" * 100_000,
        "{}",
        '{"deadLetterTargetArn": "arn:aws:sns:us-east-1:123456789012:x", "maxReceiveCount": 1}',
        f'{{"deadLetterTargetArn": "{ARN}", "maxReceiveCount": 0}}',
        f'{{"deadLetterTargetArn": "{ARN}", "maxReceiveCount": 1001}}',
        f'{{"deadLetterTargetArn": "{ARN}", "maxReceiveCount": true}}',
        f'{{"deadLetterTargetArn": "{ARN}", "maxReceiveCount": 5, "extra": 1}}',
        f'{{"deadLetterTargetArn": "{ARN}", "maxReceiveCount": "\\ud800"}}',
        '{"\\ud800": 1}',
        f'{{"deadLetterTargetArn": "{ARN}", "maxReceiveCount": 5, "maxReceiveCount": 5}}',
    ],
)
def test_redrive_policy_that_is_wrong_is_refused(policy: str) -> None:
    with pytest.raises(rules.RedriveRefused) as refused:
        check_new({"RedrivePolicy": policy})
    assert refused.value.code == "InvalidParameterValueException"
    assert refused.value.why.encode(), "half of a surrogate pair cannot be told"


def test_redrive_allow_policy_decides_about_sources() -> None:
    def allowing(policy: dict[str, object]) -> dict[str, str]:
        return check_new({"RedriveAllowPolicy": json.dumps(policy)})

    assert rules.allows_source({}, ARN)
    assert rules.allows_source(allowing({"redrivePermission": "allowAll"}), ARN)
    assert rules.allows_source(allowing({}), ARN)
    assert not rules.allows_source(allowing({"redrivePermission": "denyAll"}), ARN)
    by_queue = allowing({"redrivePermission": "byQueue", "sourceQueueArns": [ARN]})
    assert rules.allows_source(by_queue, ARN)
    assert not rules.allows_source(by_queue, ARN + "2")


@pytest.mark.parametrize(
    "policy",
    [
        {"redrivePermission": "sometimes"},
        {"redrivePermission": "byQueue"},
        {"redrivePermission": "byQueue", "sourceQueueArns": [ARN] * 11},
        {"redrivePermission": "byQueue", "sourceQueueArns": ["x"]},
        {"redrivePermission": "denyAll", "sourceQueueArns": [ARN]},
        {"sourceQueueArns": [ARN]},
        {"redrivePermision": "denyAll"},
        {"redrivePermission": "denyAll", "sourceQueueArn": [ARN]},
        {"redrivePermission": "denyAll", "\ud800": 1},
    ],
)
def test_redrive_allow_policy_that_is_wrong_is_refused(policy: dict[str, object]) -> None:
    with pytest.raises(rules.QueueProblem) as refused:
        check_new({"RedriveAllowPolicy": json.dumps(policy)})
    assert refused.value.code == "InvalidAttributeValue"
    assert refused.value.message.encode(), "half of a surrogate pair cannot be told"


def test_policy_over_its_size_is_refused() -> None:
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": statement})
    largest = policy + " " * (8_192 - len(policy))
    assert check_new({"Policy": largest})
    assert code_of(check_new, {"Policy": largest + " "}) == "InvalidAttributeValue"


def test_optional_attribute_is_taken_away_by_an_empty_value() -> None:
    stored = rules.merged(rules.DEFAULTS, {"Policy": '{"Statement": []}'})
    assert "Policy" in stored
    assert "Policy" not in rules.merged(stored, rules.check_change({"Policy": ""}, "orders"))


def test_encryption_kinds_exclude_each_other() -> None:
    both = {"KmsMasterKeyId": "alias/x", "SqsManagedSseEnabled": "true"}
    assert code_of(check_new, both) == "InvalidAttributeName"
    with_kms = rules.merged(rules.DEFAULTS, {"KmsMasterKeyId": "alias/x", "KmsDataKeyReusePeriodSeconds": "60"})
    removed = rules.merged(with_kms, {"KmsMasterKeyId": ""})
    assert not {"KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"} & set(removed)
    assert removed["SqsManagedSseEnabled"] == "false"
    assert with_kms["SqsManagedSseEnabled"] == "false"
    managed = rules.merged(with_kms, {"SqsManagedSseEnabled": "true"})
    assert not {"KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"} & set(managed)


def test_change_of_queue_type_is_refused() -> None:
    assert code_of(rules.check_change, {"FifoQueue": "true"}, "a") == "InvalidAttributeName"
    assert code_of(rules.check_change, {"FifoQueue": "false"}, "a.fifo") == "InvalidAttributeValue"
    assert rules.check_change({"FifoQueue": "true"}, "a.fifo") == {"FifoQueue": "true"}


def test_first_difference_names_the_attribute_that_differs() -> None:
    asked = {"DelaySeconds": "0", "VisibilityTimeout": "31"}
    assert rules.first_difference(rules.DEFAULTS, asked) == "VisibilityTimeout"
    assert rules.first_difference(rules.DEFAULTS, {"VisibilityTimeout": "30"}) is None
    assert rules.first_difference(rules.DEFAULTS, {"Policy": "{}"}) == "Policy"
    assert rules.first_difference({**rules.DEFAULTS, "Policy": "{}"}, {"Policy": ""}) == "Policy"


@pytest.mark.parametrize(
    ("attribute", "default", "other"),
    [
        ("KmsDataKeyReusePeriodSeconds", "300", "301"),
        ("RedriveAllowPolicy", '{"redrivePermission": "allowAll"}', '{"redrivePermission": "denyAll"}'),
        ("Penstock.Acks", "quorum", "all"),
        ("Penstock.DeduplicationWindow", "300", "301"),
        ("Penstock.Partitions", "1", "2"),
        ("Penstock.Paused", "false", "true"),
        ("Penstock.PriorityLevels", "1", "2"),
        ("Penstock.UncountedRelease", "false", "true"),
        ("Policy", "", '{"Version": "2012-10-17"}'),
    ],
)
def test_what_was_never_set_is_no_difference_from_its_default(attribute: str, default: str, other: str) -> None:
    without = rules.merged(rules.DEFAULTS, {"KmsMasterKeyId": "alias/x"})
    asked = {"KmsMasterKeyId": "alias/x"}
    for stored in (without, {**without, attribute: default}):
        assert rules.first_difference(stored, asked) is None
        assert rules.first_difference(stored, {**asked, attribute: default}) is None
        assert rules.first_difference(stored, {**asked, attribute: other}) == attribute
    assert rules.first_difference({**without, attribute: other}, {**asked, attribute: default}) == attribute


def test_partitions_of_a_high_throughput_queue_have_a_default_of_their_own() -> None:
    fast = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
    stored = rules.merged(rules.defaults_of("a.fifo"), fast)
    default = str(limits.FIFO_PARTITIONS_DEFAULT)
    assert rules.first_difference(stored, {"Penstock.Partitions": default}) is None
    assert rules.first_difference(stored, {"Penstock.Partitions": "1"}) == "Penstock.Partitions"


def test_period_of_a_key_that_is_not_used_is_no_difference() -> None:
    asked = {"SqsManagedSseEnabled": "true", "KmsDataKeyReusePeriodSeconds": "60"}
    assert rules.first_difference(rules.merged(rules.DEFAULTS, asked), asked) is None


def test_tags_beyond_their_limits_are_refused() -> None:
    assert rules.check_tags({"k" * 128: "v" * 256})
    for bad in ({"": "v"}, {"k" * 129: ""}, {"k": "v" * 257}, {f"k{n}": "" for n in range(51)}):
        assert code_of(rules.check_tags, bad) == "InvalidParameterValueException"
    assert rules.check_tag_keys(["k"] * 50)
    assert code_of(rules.check_tag_keys, ["k"] * 51) == "InvalidParameterValueException"
