"""botocore's model of SQS as the query protocol has it, so that botocore itself writes the forms and reads the XML.

The model that ships speaks JSON. The shapes are the same; what the query protocol adds are the names of flattened
fields, which stand here as the API reference gives them.
"""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

from botocore.loaders import Loader
from botocore.model import ServiceModel

_MEMBERS = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "BinaryList": "BinaryListValue",
    "ChangeMessageVisibilityBatchRequestEntryList": "ChangeMessageVisibilityBatchRequestEntry",
    "ChangeMessageVisibilityBatchResultEntryList": "ChangeMessageVisibilityBatchResultEntry",
    "DeleteMessageBatchRequestEntryList": "DeleteMessageBatchRequestEntry",
    "DeleteMessageBatchResultEntryList": "DeleteMessageBatchResultEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageList": "Message",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "QueueUrlList": "QueueUrl",
    "SendMessageBatchRequestEntryList": "SendMessageBatchRequestEntry",
    "SendMessageBatchResultEntryList": "SendMessageBatchResultEntry",
    "StringList": "StringListValue",
    "TagKeyList": "TagKey",
}
# The members of these lists are the only ones that the model gives the name of the items: an empty list of another kind
# is written under the name of its member.
_NAMED_LISTS = ("BinaryList", "StringList")
_MAPS = {
    "MessageBodyAttributeMap": ("MessageAttribute", "Name", "Value"),
    "MessageBodySystemAttributeMap": ("MessageSystemAttribute", "Name", "Value"),
    "MessageSystemAttributeMap": ("Attribute", "Name", "Value"),
    "QueueAttributeMap": ("Attribute", "Name", "Value"),
    "TagMap": ("Tag", "Key", "Value"),
}


@cache
def json_model() -> dict[str, Any]:
    model: dict[str, Any] = Loader().load_service_model("sqs", "service-2")
    return model


@cache
def query_model() -> dict[str, Any]:
    model = copy.deepcopy(json_model())
    model["metadata"].update(protocol="query", protocols=["query"], xmlNamespace=_namespace())
    model["metadata"].pop("awsQueryCompatible")
    shapes = model["shapes"]
    for shape, name in _MEMBERS.items():
        shapes[shape]["member"]["locationName"] = name
        shapes[shape]["flattened"] = True
    for shape, (_, key, value) in _MAPS.items():
        shapes[shape]["key"]["locationName"] = key
        shapes[shape]["value"]["locationName"] = value
    for shape in shapes.values():
        for member in shape.get("members", {}).values():
            if member["shape"] in _MAPS:
                member["locationName"] = _MAPS[member["shape"]][0]
            elif member["shape"] in _NAMED_LISTS:
                member["locationName"] = _MEMBERS[member["shape"]]
    for name, operation in model["operations"].items():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{name}Result"
    return model


def service_model(protocol: str) -> ServiceModel:
    return ServiceModel(query_model() if protocol == "query" else json_model(), "sqs")


def write_query_model(directory: Path) -> None:
    """As a directory of models that a session can load a client from."""
    where = directory / "sqs" / "2012-11-05"
    where.mkdir(parents=True)
    (where / "service-2.json").write_text(json.dumps(query_model()))


def _namespace() -> str:
    return "http://queue.amazonaws.com/doc/2012-11-05/"
