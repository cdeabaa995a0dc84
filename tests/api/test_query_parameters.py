"""Parameters of the query, over every operation of the route tables: what is misspelt is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from api.limits import QUERY_PARAMETER_CHARACTERS_TOLD_MAX, QUERY_PARAMETERS_TOLD_MAX
from api.operation_view import OperationView
from api.query_parameters import declared_parameters
from tests.api.test_isolation_matrix import BODIES, METHODS, Scene, dump, operations, routes
from tests.api.test_isolation_matrix import scene as scene
from tests.api.test_operation_headers import documented

pytestmark = pytest.mark.django_db(transaction=True)


def pointers(answer: Any) -> list[str]:
    return [one["pointer"] for one in answer.json().get("errors", ())]


def handlers() -> list[tuple[Any, str]]:
    """Of keys, of people, and of everybody."""
    return [(view, method) for _, view in routes() for method in METHODS if hasattr(view, method)]


def test_every_view_looks_at_its_query() -> None:
    """What is taken is what OpenAPI has with the operation."""
    told = {
        call["operationId"]: {one["name"] for one in call.get("parameters", ()) if one["in"] == "query"}
        for _, _, call in documented()
    }
    found: dict[str, set[str]] = {}
    for view, method in handlers():
        assert issubclass(view, OperationView), view
        instance = view()
        instance.request, instance.kwargs, instance.args = None, {}, ()
        schema = getattr(view, method).kwargs["schema"]()
        schema.method, schema.view = method.upper(), instance
        found[schema.get_operation_id()] = set(declared_parameters(instance, method.upper()))
    assert found == told and sum(map(len, found.values())) > 30


def test_parameter_that_an_operation_does_not_declare_is_refused_and_nothing_is_done(scene: Scene) -> None:
    before = dump(scene.owner.account_id)
    for operation, method, pattern in operations():
        for name in ("page_siz", "Shred", "Prefix", "x"):
            path = f"{scene.path(pattern)}?{name}=true"
            answer = scene.owner.request(method, path, BODIES.get(operation))
            assert (answer.status_code, pointers(answer)) == (400, [f"/{name}"]), operation
            assert dump(scene.owner.account_id) == before, operation


def test_declared_parameter_is_given_once(scene: Scene) -> None:
    answer = scene.owner.request("GET", "/v1/queues?page_size=1&page_size=2")
    assert (answer.status_code, pointers(answer)) == (400, ["/page_size"])
    answer = scene.owner.request("DELETE", "/v1/queues/orders?shred=true&shred=false")
    assert (answer.status_code, pointers(answer)) == (400, ["/shred"])
    assert scene.owner.request("GET", "/v1/queues/orders").json()["state"] == "active"


def test_refusal_says_what_is_taken_and_is_bounded(scene: Scene) -> None:
    (error,) = scene.owner.request("GET", "/v1/queues?limit=1&page_size=2").json()["errors"]
    assert error["pointer"] == "/limit"
    assert error["detail"] == "is no parameter of this operation, which takes page_size, page_token, prefix"
    assert "which takes none" in scene.owner.request("GET", "/v1/account?x=1").json()["errors"][0]["detail"]
    query = "&".join(f"{number}{'x' * 500}=1" for number in range(50))
    errors = scene.owner.request("GET", f"/v1/queues?{query}").json()["errors"]
    assert len(errors) == QUERY_PARAMETERS_TOLD_MAX
    assert max(len(one["pointer"]) for one in errors) == 1 + QUERY_PARAMETER_CHARACTERS_TOLD_MAX


def test_signature_in_the_query_is_the_front_ends(scene: Scene) -> None:
    signed = "X-Amz-Algorithm=a&X-Amz-Credential=b&X-Amz-Date=c&X-Amz-Expires=1&X-Amz-SignedHeaders=d&X-Amz-Signature="
    first = scene.owner.request("GET", f"/v1/queues?page_size=1&{signed}e")
    assert first.status_code == 200
    token = first.json()["next_page_token"]
    rest = scene.owner.request("GET", f"/v1/queues?page_size=9&{signed}f&page_token={token}")
    assert rest.status_code == 200, "each page has a signature of its own"


def test_format_is_no_parameter_that_a_library_takes(scene: Scene) -> None:
    for wanted in ("json", "csv"):
        answer = scene.owner.request("GET", f"/v1/queues?format={wanted}")
        assert (answer.status_code, pointers(answer)) == (400, ["/format"])


@pytest.mark.parametrize("path", ["/v1/queues?x=1", "/v1/people?x=1", "/v1/queues/orders?shred=true"])
@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PROPFIND"])
def test_method_that_an_address_has_not_is_refused_as_such(scene: Scene, path: str, method: str) -> None:
    assert scene.owner.request(method, path).status_code == 405
