"""REST: definitions of the account."""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from api.definitions.comparison import compare, digest_of
from api.definitions.document import DefinitionsProblem, read_definitions
from api.definitions.exporting import export_definitions
from api.definitions.importing import import_definitions
from api.definitions.serializers import (
    ComparisonSerializer,
    DefinitionsSerializer,
    ImportRequestSerializer,
    ImportResultSerializer,
)
from api.internal.rest import caller
from api.operation_view import OperationView, Repetition
from api.pages import text_asked
from api.queues.attributes import QueueProblem


class DefinitionsView(OperationView):
    @extend_schema(
        operation_id="definitions.get",
        parameters=[OpenApiParameter("prefix", OpenApiTypes.STR), OpenApiParameter("after", OpenApiTypes.STR)],
        responses=DefinitionsSerializer,
    )
    def get(self, request: Request) -> Response:
        """Queues and policies as a document that can be imported. Up to 500 queues by name, `after` one if it is
        given; policies stand with the first ones. `next_after` stands in it where the account has more queues."""
        found = export_definitions(caller(request), text_asked(request, "prefix"), text_asked(request, "after"))
        return Response(msgspec.to_builtins(found))


class ComparisonView(OperationView):
    repetition = Repetition.READS

    @extend_schema(operation_id="definitions.compare", request=DefinitionsSerializer, responses=ComparisonSerializer)
    def post(self, request: Request) -> Response:
        """What a document would change. Changes nothing."""
        who = caller(request)
        try:
            changes = compare(who, read_definitions(request.data, who.account_id))
        except DefinitionsProblem as error:
            raise ValidationError(str(error)) from None
        return Response({"digest": digest_of(changes), "changes": [_json(one) for one in changes]})


class ImportView(OperationView):
    repetition = Repetition.WAITS

    @extend_schema(operation_id="definitions.import", request=ImportRequestSerializer, responses=ImportResultSerializer)
    def post(self, request: Request) -> Response:
        """Applies a document, if its changes are still those of the digest. Takes nothing away that it does not
        name."""
        who, asked = caller(request), request.data
        if not isinstance(asked, dict) or asked.keys() != {"definitions", "digest"}:
            raise ValidationError("The members are definitions and digest.")
        try:
            definitions = read_definitions(asked["definitions"], who.account_id)
            result = import_definitions(who, definitions, str(asked["digest"]))
        except DefinitionsProblem as error:
            if error.code == "precondition-failed":
                raise QueueProblem("PreconditionFailed", str(error)) from None
            raise ValidationError(str(error)) from None
        return Response({"outcomes": [one._asdict() for one in result.outcomes], "left": result.left})


def _json(change: Any) -> dict[str, object]:
    return {**change._asdict(), "differences": [one._asdict() for one in change.differences]}
