"""A code has one title, whichever plane tells it."""

from __future__ import annotations

from tests.support.frontend_plane import Installation


async def test_title_is_of_the_code_on_both_planes() -> None:
    from api.problems import problem as of_the_control_plane

    told = (await Installation().rest("/v1/queues/none/messages", {"body": "x"})).json
    assert told["title"] == "Queue does not exist" == of_the_control_plane(404, told["code"], "").data["title"]
    assert of_the_control_plane(403, "access-denied", "").data["title"] == "Access denied"
