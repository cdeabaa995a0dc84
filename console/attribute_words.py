"""The attributes of a queue in words: what a form asks for, in which order, and what each one means."""

from __future__ import annotations

from typing import NamedTuple

from api.queues.attributes import defaults_of, is_fifo


class Word(NamedTuple):
    """`kind`: seconds, bytes, number, choice, json, dead-letter or encryption-key. `choices` are (value, words)."""

    name: str
    label: str
    help: str
    kind: str
    low: int = 0
    high: int = 0
    choices: tuple[tuple[str, str], ...] = ()
    only: str = ""  # "fifo" or "standard"
    default: str = ""
    fixed: bool = False  # cannot be changed later


class Section(NamedTuple):
    title: str
    words: tuple[Word, ...]


_ON_OFF = (("false", "Off"), ("true", "On"))
DELIVERY = Section(
    "Delivery",
    (
        Word(
            "VisibilityTimeout", "Visibility timeout",
            "How long a received message is hidden from other consumers. Longer than the slowest work on one message: "
            "a message that is not deleted in this time is delivered again.", "seconds", 0, 43_200,
        ),
        Word(
            "DelaySeconds", "Delivery delay",
            "How long each new message waits before it can be received. A message may name its own delay.",
            "seconds", 0, 900,
        ),
        Word(
            "ReceiveMessageWaitTimeSeconds", "Receive wait",
            "How long an empty receive waits for a message. 20 seconds cost the fewest requests.", "seconds", 0, 20,
        ),
        Word(
            "MessageRetentionPeriod", "Retention",
            "Messages older than this are deleted, whether they were received or not.", "seconds", 60, 1_209_600,
        ),
        Word("MaximumMessageSize", "Largest message", "Body and attributes together.", "bytes", 1_024, 1_048_576),
    ),
)  # fmt: skip
FAILURE = Section(
    "When work fails",
    (
        Word(
            "RedrivePolicy", "Dead-letter queue",
            "A message that was received this many times without being deleted moves there, where you can look at "
            "it and move it back.", "dead-letter",
        ),
        Word(
            "RedriveAllowPolicy", "Which queues may use this one as dead-letter queue",
            'JSON, for example {"redrivePermission": "denyAll"}. Empty: every queue of the account.', "json",
        ),
        Word(
            "Penstock.RetryPolicy", "Retry pauses",
            'The pause before a failed message is delivered again, as JSON: {"kind": "exponential", "delay_ms": 1000, '
            '"max_ms": 60000, "jitter": 0.2}. Empty: the visibility timeout alone counts.', "json",
        ),
        Word(
            "Penstock.UncountedRelease", "Release without counting",
            "On: a consumer that releases a message at once does not use up one of its receives.",
            "choice", choices=_ON_OFF, default="false",
        ),
    ),
)  # fmt: skip
ORDER = Section(
    "Order and duplicates",
    (
        Word(
            "ContentBasedDeduplication", "Deduplicate by content",
            "On: two messages with the same body within the window count as one. Off: each send names an id.",
            "choice", choices=_ON_OFF, only="fifo",
        ),
        Word(
            "DeduplicationScope", "Deduplication scope",
            "The whole queue, or each message group by itself.", "choice",
            choices=(("queue", "The queue"), ("messageGroup", "The message group")), only="fifo",
        ),
        Word(
            "FifoThroughputLimit", "Throughput limit applies to",
            "Per group lets groups be spread over more partitions.", "choice",
            choices=(("perQueue", "The queue"), ("perMessageGroupId", "Each message group")), only="fifo",
        ),
        Word(
            "Penstock.DeduplicationWindow", "Deduplication window",
            "How long a deduplication id is remembered. Empty: 300 seconds.", "seconds", 1, 3_600,
        ),
        Word(
            "Penstock.ParkGroups", "Hold a group after a dead letter",
            "On: when a message of a group goes to the dead-letter queue, the rest of that group waits until you "
            "release it.",
            "choice", choices=_ON_OFF, only="fifo", default="false",
        ),
    ),
)  # fmt: skip
SCALE = Section(
    "Scale and safety",
    (
        Word(
            "Penstock.Partitions", "Partitions",
            "More of them take more messages a second, on more nodes. Empty: as many as the kind of queue has by "
            "default.", "number", 1, 16,
        ),
        Word(
            "Penstock.PriorityLevels", "Priority levels",
            "Messages of a higher level are delivered first. Empty: one level.", "number", 1, 10, only="standard",
        ),
        Word(
            "Penstock.Acks", "A send is acknowledged when",
            "Quorum: when a majority of replicas has it on disk. The other choices are faster or safer.", "choice",
            choices=(("", "Quorum (default)"), ("all", "All replicas have it"), ("leader", "The leader has it"),
                     ("none", "At once; it may be lost")),
        ),
        Word(
            "SqsManagedSseEnabled", "Encryption at rest as SQS reports it",
            "Messages are always encrypted with a key of the queue; this is what SQS clients are told.", "choice",
            choices=(("true", "On"), ("false", "Off")),
        ),
        Word(
            "KmsMasterKeyId", "Encryption key",
            "Id, ARN or alias/name of an encryption key of the account. Empty: a key that Penstock keeps.",
            "encryption-key",
        ),
        Word(
            "KmsDataKeyReusePeriodSeconds", "Data key reuse",
            "For how long messages are encrypted with one key derived from the encryption key.", "seconds", 60, 86_400,
        ),
    ),
)  # fmt: skip
SECTIONS = (DELIVERY, FAILURE, ORDER, SCALE)
# Changed by buttons and on tabs of their own, or decided by the name.
ELSEWHERE = frozenset({"FifoQueue", "Penstock.Paused", "Policy"})


class Field(NamedTuple):
    word: Word
    value: str
    error: str = ""


class FieldSection(NamedTuple):
    title: str
    fields: list[Field]


def form_of(values: dict[str, str], fifo: bool | None, wrong: str = "", error: str = "") -> list[FieldSection]:
    """The form with these values; `fifo` None: of both kinds. `wrong` is the attribute that `error` is about."""
    kind = {None: "", True: "fifo", False: "standard"}[fifo]
    sections = []
    for section in SECTIONS:
        words = [one for one in section.words if not (kind and one.only) or one.only == kind]
        fields = [Field(one, values.get(one.name, one.default), error if one.name == wrong else "") for one in words]
        sections.append(FieldSection(section.title, fields))
    return sections


def set_fields(values: dict[str, str], fifo: bool) -> list[FieldSection]:
    """What there is to show: attributes that have a value."""
    sections = [FieldSection(title, [one for one in fields if one.value]) for title, fields in form_of(values, fifo)]
    return [section for section in sections if section.fields]


def attributes_given(form: dict[str, str], name: str) -> dict[str, str]:
    """What a form says that is not empty, under the names of SQS; what is for the other kind of queue is left out."""
    kind = "fifo" if is_fifo(name) else "standard"
    words = [one for section in SECTIONS for one in section.words if one.only in ("", kind)]
    return {one.name: form[one.name].strip() for one in words if form.get(one.name, "").strip()}


def changed(form: dict[str, str], stored: dict[str, str], name: str) -> dict[str, str]:
    """What a form changes of a queue: an emptied field takes an attribute away."""
    kind = "fifo" if is_fifo(name) else "standard"
    words = [one for section in SECTIONS for one in section.words if one.only in ("", kind) and one.name in form]
    asked = {one.name: form[one.name].strip() for one in words}
    defaults = defaults_of(name) | {one.name: one.default for one in words if one.default}
    return {
        attribute: value or defaults.get(attribute, "")
        for attribute, value in asked.items()
        if value != stored.get(attribute, defaults.get(attribute, "") if value else "")
    }


def not_default(attributes: dict[str, str], name: str) -> dict[str, str]:
    """What differs from the defaults, for the texts that create the same queue."""
    defaults = defaults_of(name)
    return {key: value for key, value in attributes.items() if defaults.get(key) != value or key == "FifoQueue"}


def attribute_in(message: str) -> str:
    """The attribute that a refusal speaks of, "" where it names none."""
    names = [one.name for section in SECTIONS for one in section.words]
    return next((name for name in sorted(names, key=len, reverse=True) if name in message), "")
