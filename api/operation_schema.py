"""What OpenAPI says of every operation by itself: the headers that `operation_view.py` reads and writes."""

from __future__ import annotations

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter

from api import limits
from api.idempotency.asked import HEADER
from api.idempotency.outcomes import REPLAYED_HEADER
from api.operation_view import takes_key

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


class OperationSchema(AutoSchema):
    def get_override_parameters(self) -> list[Any]:
        return [IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED] if takes_key(self.view, self.method) else []
