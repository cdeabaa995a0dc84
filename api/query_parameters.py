"""The query of a management call: the parameters that OpenAPI has with the operation, each once, and nothing else. No
body where it takes none.

What is misspelt must not be left out in silence: `?Shred=true` would delete a queue and shred nothing.
"""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from api.limits import QUERY_PARAMETER_CHARACTERS_TOLD_MAX, QUERY_PARAMETERS_TOLD_MAX
from api.unknown_members import unknown_members

# Of a signature in the query: read, and bounded, by the front end.
SIGNATURE_PREFIX = "X-Amz-"
_declared: dict[tuple[type, str], frozenset[str]] = {}
_bodyless: dict[tuple[type, str], bool] = {}


def check_query(request: Request, view: Any, method: str) -> None:
    """Raises ValidationError, which names what is not taken."""
    given = [(name, values) for name, values in request.query_params.lists() if not is_of_signature(name)]
    if not given or not _is_handled(view, method):
        return  # it is refused as such
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


def check_body(request: Request, view: Any, method: str) -> None:
    """An operation that takes no body leaves none out in silence: a rotation with a misspelt option, or a deletion with
    `shred` in its body. Raises ValidationError."""
    if method not in ("POST", "PUT", "PATCH", "DELETE") or not takes_no_body(view, method) or not request.data:
        return
    raise ValidationError(unknown_members(request.data, ()) if isinstance(request.data, dict) else "takes no body")


def takes_no_body(view: Any, method: str) -> bool:
    """As `extend_schema(request=None)` of the handler says, and of every DELETE."""
    place = (type(view), method)
    if place not in _bodyless:
        _bodyless[place] = _is_handled(view, method) and (
            method == "DELETE" or schema_of(view, method).get_request_serializer() is None
        )
    return _bodyless[place]


def declared_parameters(view: Any, method: str) -> frozenset[str]:
    """As `extend_schema(parameters=...)` of the handler names them."""
    place = (type(view), method)
    if place not in _declared:
        asked = schema_of(view, method).get_override_parameters()
        found = [one for one in asked if isinstance(one, OpenApiParameter)]
        _declared[place] = frozenset(one.name for one in found if one.location == OpenApiParameter.QUERY)
    return _declared[place]


def schema_of(view: Any, method: str) -> Any:
    """What `extend_schema` of the handler says. It takes a while to make: keep what is asked of it."""
    schema = getattr(type(view), method.lower()).kwargs["schema"]()
    schema.method, schema.view = method, view
    return schema


def _is_handled(view: Any, method: str) -> bool:
    """False: the view has no handler of ours for the method."""
    return hasattr(getattr(type(view), method.lower(), None), "kwargs")


def is_of_signature(name: str) -> bool:
    return name.startswith(SIGNATURE_PREFIX)


def without_signature(target: bytes) -> bytes:
    """Path and query as they were sent: who repeats a request signs it anew, and it is the same request."""
    path, _, query = target.partition(b"?")
    kept = [part for part in query.split(b"&") if part and not part.startswith(SIGNATURE_PREFIX.encode())]
    return path + b"?" + b"&".join(kept) if kept else path
