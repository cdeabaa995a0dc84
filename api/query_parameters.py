"""The query of a management call: the parameters that OpenAPI has with the operation, each once, and nothing else.

What is misspelt must not be left out in silence: `?Shred=true` would delete a queue and shred nothing.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from api.limits import QUERY_PARAMETER_CHARACTERS_TOLD_MAX, QUERY_PARAMETERS_TOLD_MAX

# Of a signature in the query: read, and bounded, by the front end.
SIGNATURE_PREFIX = "X-Amz-"
_declared: dict[tuple[type, str], frozenset[str]] = {}


def check_query(request: Request, view: Any, method: str) -> None:
    """Raises ValidationError, which names what is not taken."""
    given = [(name, values) for name, values in request.query_params.lists() if not is_of_signature(name)]
    if not given or not hasattr(getattr(type(view), method.lower(), None), "kwargs"):
        return  # of a method without a handler of ours: it is refused as such
    taken = declared_parameters(view, method)
    wrong = {}
    for name, values in given:
        if name not in taken:
            wrong[name] = f"is no parameter of this operation, which takes {', '.join(sorted(taken)) or 'none'}"
        elif len(values) > 1:
            wrong[name] = "is given more than once"
    if wrong:
        told = list(wrong.items())[:QUERY_PARAMETERS_TOLD_MAX]
        raise ValidationError({name[:QUERY_PARAMETER_CHARACTERS_TOLD_MAX]: text for name, text in told})


def declared_parameters(view: Any, method: str) -> frozenset[str]:
    """As `extend_schema(parameters=...)` of the handler names them."""
    place = (type(view), method)
    if place not in _declared:
        schema = getattr(type(view), method.lower()).kwargs["schema"]()
        schema.method, schema.view = method, view
        found = [one for one in schema.get_override_parameters() if isinstance(one, OpenApiParameter)]
        _declared[place] = frozenset(one.name for one in found if one.location == OpenApiParameter.QUERY)
    return _declared[place]


def is_of_signature(name: str) -> bool:
    return name.startswith(SIGNATURE_PREFIX)


def without_signature(target: bytes) -> bytes:
    """Path and query as they were sent: who repeats a request signs it anew, and it is the same request."""
    path, _, query = target.partition(b"?")
    kept = [part for part in query.split(b"&") if part and not part.startswith(SIGNATURE_PREFIX.encode())]
    return path + b"?" + b"&".join(kept) if kept else path
