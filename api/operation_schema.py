"""What OpenAPI says of every operation by itself: the headers that `operation_view.py` reads and writes."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

from api import limits
from api.etags import IF_MATCH, IF_NONE_MATCH
from api.idempotency.asked import HEADER
from api.idempotency.outcomes import REPLAYED_HEADER
from api.operation_view import takes_etags, takes_key, takes_new_only

IDEMPOTENCY_KEY = OpenApiParameter(
    HEADER,
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description=(
        f'A string in quotes, "..." of 1 to {limits.IDEMPOTENCY_KEY_CHARACTERS_MAX} printable ASCII characters. For '
        f"{limits.IDEMPOTENCY_KEPT_S // 3600} h the same request with the same key is answered as the first one was, "
        "and not carried out again."
    ),
)
IDEMPOTENT_REPLAYED = OpenApiParameter(
    REPLAYED_HEADER,
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    enum=["true"],
    response=True,
    description="This is the answer of an earlier request with the same Idempotency-Key.",
)


ETAG = OpenApiParameter(
    "ETag", OpenApiTypes.STR, OpenApiParameter.HEADER, response=[200, 201], description="Of what stands in the answer."
)
IF_MATCH_PARAMETER = OpenApiParameter(
    IF_MATCH,
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="ETags of what is meant, or *. Anything else: 412.",
)
IF_NONE_MATCH_PARAMETER = OpenApiParameter(
    IF_NONE_MATCH,
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="ETags of what the client has: 304 where nothing has changed.",
)
IF_NEW_PARAMETER = OpenApiParameter(
    IF_NONE_MATCH, OpenApiTypes.STR, OpenApiParameter.HEADER, description="* means: only where it is not there. Or 412."
)


class OperationSchema(AutoSchema):
    def get_override_parameters(self) -> list[Any]:
        headers = [IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED] if takes_key(self.view, self.method) else []
        if takes_etags(self.view, self.method):
            headers += [IF_NONE_MATCH_PARAMETER if self.method == "GET" else IF_MATCH_PARAMETER]
            headers += [IF_NEW_PARAMETER] if takes_new_only(self.view, self.method) else []
            headers += [] if self.method == "DELETE" else [ETAG]
        return headers
