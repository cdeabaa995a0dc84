"""An address that names no resource is answered with where the resources are listed."""

from __future__ import annotations

import json

from django.test import RequestFactory

from api.problems import not_found


def test_path_that_is_not_there_leads_to_the_list_of_paths() -> None:
    answer = not_found(RequestFactory().get("/v1/nope"), Exception())
    assert answer.status_code == 404 and "/v1/openapi.json" in json.loads(answer.content)["detail"]
