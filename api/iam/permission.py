"""DRF's permission of every management view: the operation that the view declares, asked of the caller's policies.

Imports no `rest_framework.views`: that reads its settings, which name this module.
"""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from api.iam.authorisation import require
from api.iam.targets import targets_of
from api.query_parameters import schema_of
from frontend.authn.principal import Principal
from frontend.authz.actions import MANAGEMENT_OPERATIONS

_operations: dict[tuple[type, str], str] = {}


class MayDo(BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        """Raises AccessDenied."""
        principal = request.user
        if not isinstance(principal, Principal):
            return False
        if request.method == "OPTIONS" or not hasattr(view, (request.method or "").lower()):
            return True  # answered with 405
        operation = operation_of(view, request.method or "")
        targets = targets_of(operation, principal.account_id, request, view.kwargs)
        if targets is not None:
            require(principal, MANAGEMENT_OPERATIONS[operation], targets)
        return True


def operation_of(view: Any, method: str) -> str:
    """As `extend_schema(operation_id=...)` of the handler names it, so that the documented operation is the one that is
    asked for. Raises KeyError for a handler that declares none: such a view answers nobody."""
    name = (type(view), "GET" if method == "HEAD" else method)
    if name not in _operations:
        operation = schema_of(view, name[1]).get_operation_id()
        _operations[name] = operation if operation in MANAGEMENT_OPERATIONS else ""
    operation = _operations[name]
    if not operation:
        raise KeyError(f"{name[0].__name__}.{name[1].lower()} declares no operation of MANAGEMENT_OPERATIONS")
    return operation
