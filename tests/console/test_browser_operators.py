"""Operators in a real browser: nodes drained and taken back, replicas moved, accounts suspended, requests for quotas
answered, plans given with a tax in percent."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.console.pictures import PHONE
from tests.console.serving import ServedPages
from tests.console.test_accessibility import MARK_ANSWERED, wrong
from tests.console.test_cluster_pages import ClusterScript, info, script
from tests.console.variants import DESKTOP_DARK, DESKTOP_LIGHT, PHONE_DARK, PHONE_LIGHT, flow
from tests.console.window import Window

__all__ = ["script"]

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def operator(served: ServedPages, browser_beside_rows: Any) -> Iterator[Window]:
    window = Window(browser_beside_rows, served)
    served.enter(window.page, served.operator_link)
    yield window
    window.close()


@pytest.fixture
def owner(served: ServedPages, operator: Window) -> Iterator[Window]:
    """In the same browser, with cookies of its own."""
    window = Window(operator.context.browser, served)
    served.enter(window.page, served.owner_link)
    yield window
    window.close()


@pytest.fixture
def cluster(script: ClusterScript, monkeypatch: pytest.MonkeyPatch) -> ClusterScript:
    """Two nodes that are as they were asked to be, and one partition, which moves once it was asked to."""
    from api.cluster.selectors import view_of
    from console.views import cluster

    async def look() -> Any:
        moves = [asked for asked in script.asked if asked[0] == "move"]
        move = None
        if moves and script.asked[-1][0] != "cancel":
            _, _, source, target = moves[-1]
            move = SimpleNamespace(number=3, source=source, target=target, undo=False, match=25, log_end=100)
        said = info(1, leader=1, epoch=5, clocks_off=(), move=move)
        for node in said.nodes:
            states = [asked[2] for asked in script.asked if asked[:2] == ("state", node.node_id)]
            node.state = states[-1] if states else 0
        return view_of({1: said, 2: said}, [])

    monkeypatch.setattr(cluster, "look_at_cluster", look)
    return script


@flow(PHONE_DARK)
def test_node_is_drained_taken_back_and_a_replica_moved(
    served: ServedPages, cluster: ClusterScript, operator: Window
) -> None:
    page, asked = operator.page, list[str]()
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    page.add_init_script(MARK_ANSWERED)
    page.goto(served.at("operators/"))
    operator.see("No system alarm.")
    cluster.refuses = "no other node has room for its replicas"
    page.get_by_role("button", name="Drain node 2").click()
    operator.see("No other node has room for its replicas.")
    cluster.refuses, cluster.asked[:] = "", []
    operator.choose("Cluster")
    page.get_by_role("button", name="Drain node 2").click()
    operator.see("Node 2 is being drained")
    assert asked and asked[-1].startswith("Drain node 2? All that it holds (replicas: 1) moves")
    row = page.locator("tr", has_text="Draining")
    row.get_by_role("button", name="Take node 2 back").click()
    operator.see("Node 2 is active again.")
    page.get_by_role("button", name="Drain node 2").wait_for()
    for label, number in (("Partition", "7"), ("From node", "1"), ("To node", "4")):
        page.get_by_label(label, exact=True).fill(number)
    page.get_by_role("button", name="Move the replica").click()
    operator.see("Partition 7 moves from node 1 to node 4.")
    operator.see("25 %")
    assert wrong(page) == []
    page.set_viewport_size(PHONE)
    assert operator.fits()
    for name in ("Drain node 2", "Cancel the move of partition 7"):
        box = page.get_by_role("button", name=name).bounding_box()
        assert box is not None and box["x"] + box["width"] <= PHONE["width"], "in sight without scrolling sideways"
    page.get_by_role("button", name="Cancel the move of partition 7").click()
    operator.see("No replica is moving.")
    assert cluster.asked == [("state", 2, 1), ("state", 2, 0), ("move", 7, 1, 4), ("cancel", 7, 3)]


@flow(DESKTOP_DARK)
def test_account_is_suspended_with_a_reason_and_resumed(served: ServedPages, operator: Window, owner: Window) -> None:
    page = operator.page
    page.goto(served.at("operators/accounts"))
    page.get_by_role("link", name="shop", exact=True).click()
    page.get_by_label("Reason").first.fill("Unpaid since March")
    page.get_by_role("button", name="Suspend the account").click()
    operator.see("The account is suspended: its keys are refused.")
    owner.page.goto(served.of_account("settings"))
    owner.see("This account is suspended.")
    owner.see("Unpaid since March")
    page.get_by_role("button", name="Resume the account").click()
    operator.see("The account is active again.")
    owner.page.goto(served.of_account())
    owner.page.get_by_role("link", name="New queue").first.wait_for()


@flow(PHONE_LIGHT)
def test_request_for_a_quota_is_approved_and_the_answer_is_read(
    served: ServedPages, operator: Window, owner: Window
) -> None:
    owner.page.goto(served.of_account("quotas"))
    owner.page.locator("select[name=name]").select_option("queues")
    owner.page.get_by_label("Value").fill("250000")
    owner.page.get_by_label("Reason").fill("One queue a shop")
    owner.page.get_by_role("button", name="Send the request").click()
    owner.see("is with the operator.")
    page = operator.page
    operator.choose("Quotas")
    operator.see("One queue a shop")
    page.get_by_label("Answer").fill("Welcome")
    page.get_by_role("button", name="Approve").click()
    operator.see("The request for queues is approved.")
    owner.page.goto(served.of_account("quotas"))
    owner.see("Welcome")
    assert "250,000" in owner.page.locator("tr", has_text="queues").first.inner_text()


@flow(DESKTOP_LIGHT)
def test_plan_is_created_and_given_with_a_tax_in_percent(served: ServedPages, operator: Window, owner: Window) -> None:
    page = operator.page
    page.goto(served.at("operators/billing/new-plan"))
    page.get_by_label("Code").fill("house")
    page.get_by_label("Name", exact=True).fill("House prices")
    page.get_by_role("button", name="Create the plan").click()
    operator.see("The plan house is created.")
    page.goto(served.at(f"operators/billing/accounts/{served.account_id}"))
    page.get_by_label("Plan").select_option("house")
    page.get_by_label("Taxes").fill("VAT=19.5.1")
    page.get_by_role("button", name="Assign the plan").click()
    operator.see("A tax is written in percent, like VAT=19.")
    page.get_by_label("Plan").select_option("house")
    page.get_by_label("Taxes").fill("VAT=19.5")
    page.get_by_role("button", name="Assign the plan").click()
    operator.see("VAT 19.5 %")
    owner.page.goto(served.of_account("billing/prices"))
    owner.see("VAT: 19.5 % of what is left after credits.")
    owner.page.set_viewport_size(PHONE)
    assert owner.fits()
