"""The console in a real browser, on a running installation, as a person would use it."""

from __future__ import annotations

import copy
import json
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from storage_nodes.ids import node_name
from tests.console.pictures import (
    PHONE,
    account_of,
    browsing,
    chromium_path,
    fill,
    link_of,
    new_account,
    open_link,
    url_of,
)
from tests.console.variants import (
    DESKTOP_DARK,
    DESKTOP_LIGHT,
    PHONE_DARK,
    PHONE_LIGHT,
    RUNS_ALL,
    VARIANTS,
    Variant,
    flow,
    variant_held,
)
from tests.console.window import CONTRAST, Window
from tests.support.installation import RunningInstallation

pytestmark = pytest.mark.slow
TAILED_S = 5


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if chromium_path() is None:
        pytest.fail("there is no Chromium; install it with: sudo apt-get install -y chromium fonts-dejavu-core")
    with browsing() as found:
        yield found


@flow(PHONE_DARK)
def test_key_of_a_page_opens_the_service_and_is_shown_once(browser: Any, installation: RunningInstallation) -> None:
    import httpx2

    window = Window(browser, installation)
    page = window.page
    open_link(page, link_of(installation, "--account", new_account(installation, "keyed")))
    page.goto(f"{page.url}keys")
    page.get_by_label("Name").fill("worker")
    page.get_by_role("button", name="Create a key").click()
    token = page.locator("code", has_text=re.compile("^pstk_")).inner_text()
    headers = {"Authorization": f"Bearer {token}"}
    assert httpx2.get(f"{window.endpoint}/v1/queues", headers=headers).status_code == 200
    page.goto(page.url.replace("/keys/new", "/keys"))
    assert page.locator("code", has_text=re.compile("^pstk_")).count() == 0
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("link", name="worker", exact=True).click()
    page.get_by_role("button", name="Revoke the key").click()
    window.see("opens nothing from now on")
    assert httpx2.get(f"{window.endpoint}/v1/queues", headers=headers).status_code in (401, 403)
    window.close()


class SignedIn(NamedTuple):
    """A session of the account that has examples: its cookies, and the path of its first page."""

    state: Any
    path: str


class Shops:
    """Accounts of examples, whose lists are not full of the queues of other tests. Flows change what is in them, so
    each variant has one where flows run in all."""

    def __init__(self, browser: Any, installation: RunningInstallation) -> None:
        self._browser, self._installation = browser, installation
        self._filled: dict[str, RunningInstallation] = {}
        self._sessions: dict[str, SignedIn] = {}

    def filled(self, name: str) -> RunningInstallation:
        if name not in self._filled:
            shop = copy.copy(self._installation)
            shop.key = json.loads(self._installation.command("keys", "create", "--account", name, "--json").stdout)
            fill(shop)
            self._filled[name] = shop
        return self._filled[name]

    def signed_in(self, name: str) -> SignedIn:
        """A session costs a command of the launcher, so the tests of this file share one."""
        if name not in self._sessions:
            context = self._browser.new_context()
            page = context.new_page()
            open_link(page, link_of(self.filled(name), "--account", name))
            self._sessions[name] = SignedIn(context.storage_state(), f"/console/a/{account_of(page)}/")
            context.close()
        return self._sessions[name]


def shop_name() -> str:
    return f"shop-{variant_held()}" if RUNS_ALL else "shop"


@pytest.fixture(scope="module")
def shops(browser: Any, installation: RunningInstallation) -> Shops:
    return Shops(browser, installation)


@pytest.fixture
def filled(shops: Shops, variant: Variant) -> RunningInstallation:
    return shops.filled(shop_name())


@pytest.fixture
def signed_in(shops: Shops, variant: Variant) -> SignedIn:
    return shops.signed_in(shop_name())


@flow(DESKTOP_DARK)
def test_dead_letters_are_counted_and_moved_back(
    browser: Any, filled: RunningInstallation, signed_in: SignedIn
) -> None:
    window = Window(browser, filled, storage_state=signed_in.state)
    page = window.page
    page.goto(url_of(filled, signed_in.path))
    account = page.url
    page.locator(".attention").get_by_role("link", name="orders-dead").click()
    page.get_by_label("Body has").fill("SPRING")
    page.get_by_role("button", name="Dry run: count").click()
    page.locator("#tasks", has_text="Completed").get_by_text("4 match of 4 checked").wait_for()
    page.get_by_role("button", name="Move", exact=True).click()
    page.locator("#tasks").get_by_text("4 moved").wait_for()
    page.goto(f"{account}queues/orders-dead/messages")
    window.see("The queue is empty")
    window.close()


@flow(PHONE_LIGHT)
def test_queue_is_searched_paused_purged_and_deleted(
    browser: Any, filled: RunningInstallation, signed_in: SignedIn
) -> None:
    window = Window(browser, filled, storage_state=signed_in.state)
    page = window.page
    page.goto(url_of(filled, signed_in.path))
    window.choose("Queues")
    row = page.locator('tr[data-queue="orders"]')
    row.locator("td", has_text="1").first.wait_for()
    page.keyboard.press("/")
    page.keyboard.type("thumb")
    page.locator('tr[data-queue="orders"]').wait_for(state="detached")
    page.get_by_role("link", name="thumbnails").click()
    page.get_by_role("button", name="Pause delivery").click()
    window.see("Delivery is paused: receives return no messages")
    page.get_by_role("button", name="Resume delivery").click()
    window.see("Delivery is resumed.")
    for what, button in (("Purge …", "Purge all messages"), ("Delete …", "Delete the queue")):
        page.locator("summary", has_text="More").click()
        page.get_by_role("link", name=what).click()
        page.locator("button:disabled", has_text=button).wait_for()
        page.get_by_label("Type thumbnails to confirm").fill("thumbnails")
        page.get_by_role("button", name=button).click()
        page.locator("p.note").first.wait_for()
    window.see("The queue thumbnails is deleted.")
    window.close()


POINTS = 60
CHART = """<section class="series"><div class="head"><h3>Messages a minute</h3>
<button type="button" data-series-table="rates" aria-pressed="false">As a table</button></div>
<div class="chart series-chart" role="img" data-series="{data}" data-labels="Sent|Received" data-unit="count"></div>
<div class="table-box series-rows" tabindex="0" hidden></div></section>"""


@flow(DESKTOP_LIGHT)
def test_charts_of_a_queue_are_drawn_and_read_as_tables(
    browser: Any, filled: RunningInstallation, signed_in: SignedIn
) -> None:
    """The points are made up: series of an installation that has just begun have none."""
    window = Window(browser, filled, storage_state=signed_in.state)
    page = window.page
    times = [1_800_000_000 + 60 * number for number in range(POINTS)]
    sent = [None if number == 30 else number * 1_000 for number in range(POINTS)]
    page.route("**/charts?*", lambda route: route.fulfill(body=CHART.format(data=json.dumps([times, sent, sent]))))
    page.goto(url_of(filled, f"{signed_in.path}queues/orders/metrics"))
    page.locator(".series canvas").wait_for()
    page.get_by_role("button", name="As a table").click()
    rows = page.locator(".series-rows tbody tr")
    assert rows.count() == POINTS and rows.first.locator("td").nth(1).inner_text() == "59k"
    assert rows.nth(POINTS - 1 - 30).locator("td").nth(1).inner_text() == "–"
    page.get_by_role("button", name="As a chart").click()
    page.locator(".series canvas").wait_for()
    page.get_by_role("link", name="7 days").click()
    page.wait_for_url("**span=7d")
    assert page.get_by_role("link", name="7 days").get_attribute("aria-current") == "true"
    page.set_viewport_size(PHONE)
    assert window.fits()
    window.close()


@flow(DESKTOP_LIGHT)
def test_page_is_reached_by_keyboard_alone(browser: Any, filled: RunningInstallation, signed_in: SignedIn) -> None:
    window = Window(browser, filled, storage_state=signed_in.state)
    page = window.page
    page.goto(url_of(filled, signed_in.path))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Control+k")
    page.keyboard.type("invoices")
    page.locator("#jumps a small").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/queues/invoices-mail")
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url("**/queues")
    window.close()


@flow(*VARIANTS)
def test_pages_fit_and_can_be_read(browser: Any, filled: RunningInstallation, signed_in: SignedIn) -> None:
    window = Window(browser, filled, storage_state=signed_in.state)
    page = window.page
    start = signed_in.path
    for path in ("", "queues", "queues/orders", "queues/orders/messages", "new-queue", "queues/orders/send", "audit"):
        page.goto(url_of(filled, f"{start}{path}"))
        page.wait_for_load_state("networkidle" if path in ("", "queues") else "load")
        assert window.fits(), path
        assert page.evaluate(CONTRAST) == [], path
    window.choose("Queues")
    page.wait_for_url("**/queues")
    window.close()


class TailPage:
    """The live page of a queue, and a way to send to it."""

    def __init__(self, window: Window, filled: RunningInstallation, signed_in: SignedIn, queue: str) -> None:
        self.page, self.queue = window.page, queue
        self.rest = filled.rest()
        self.rest.post("/v1/queues", json={"name": queue}).raise_for_status()
        self.page.goto(url_of(filled, f"{signed_in.path}queues/{queue}/tail"))
        self.is_shown("Live")

    def is_shown(self, badge: str) -> None:
        self.page.locator("[data-tail-badge]", has_text=badge).wait_for()

    def send(self, *bodies: str) -> None:
        messages = [{"body": body} for body in bodies]
        answer = self.rest.post(f"/v1/queues/{self.queue}/messages", json={"messages": messages})
        assert answer.status_code == 200, answer.text

    @property
    def lines(self) -> list[str]:
        texts: list[str] = self.page.locator("[data-row-line]").all_inner_texts()
        return texts

    def figure(self, name: str) -> int:
        return int(self.page.locator(f"[data-tail-{name}]").inner_text().replace(",", ""))


@flow(DESKTOP_DARK)
def test_live_tail_is_watched_paused_filtered_and_ends_with_the_session(
    browser: Any, filled: RunningInstallation
) -> None:
    window = Window(browser, filled)
    open_link(window.page, link_of(filled, "--account", shop_name()))
    own = SignedIn(None, f"/console/a/{account_of(window.page)}/")
    tail, page = TailPage(window, filled, own, f"live-{uuid.uuid4().hex[:8]}"), window.page
    tail.send('<img src=x onerror="throw 1">')
    page.locator("[data-row-line]", has_text="<img src=x").wait_for()
    page.locator("details.message summary").first.click()
    page.get_by_role("button", name="Pause", exact=True).click()
    tail.is_shown("Paused")
    tail.send("while paused")
    page.wait_for_timeout(1_000)
    assert len(tail.lines) == 1
    page.get_by_role("button", name="Resume", exact=True).click()
    page.locator("[data-row-line]", has_text="while paused").wait_for()
    assert tail.lines[0] == "while paused", "the newest first"
    page.get_by_label("Text in the body").fill("red")
    page.get_by_role("button", name="Filter").click()
    assert page.url.endswith("tail?text=red") and tail.lines == []
    tail.send("blue", "red")
    page.locator("[data-row-line]", has_text="red").wait_for()
    assert tail.lines == ["red"]
    other = window.another()
    other.page.goto(url_of(filled, own.path))
    other.sign_out()
    other.page.wait_for_url("**/console/sign-in*")
    window.see("Your session has ended.")
    window.close()


@flow(PHONE_LIGHT)
def test_live_tail_follows_a_thousand_messages_a_second(
    browser: Any, filled: RunningInstallation, signed_in: SignedIn
) -> None:
    window = Window(browser, filled, storage_state=signed_in.state)
    tail, page = TailPage(window, filled, signed_in, f"fast-{uuid.uuid4().hex[:8]}"), window.page
    began_s = time.monotonic()
    for second in range(TAILED_S):
        for half in range(2):
            tail.send(*(json.dumps({"order": second * 1_000 + half * 500 + number}) for number in range(500)))
        time.sleep(max(0.0, began_s + second + 1 - time.monotonic()))
    count = 1_000 * TAILED_S
    page.locator("[data-tail-found]", has_text=re.compile(f"^{count:,}$")).wait_for()
    assert page.locator("[data-tail-passed]").is_hidden(), "every one was looked at"
    assert tail.figure("shown") + tail.figure("left") == count and tail.figure("shown") > 0
    assert 0 < len(tail.lines) <= 300
    page.locator("details.message summary").first.click()
    page.get_by_role("link", name="In the message browser").first.wait_for()
    page.get_by_role("button", name="Clear").click()
    assert tail.figure("found") == 0 and tail.lines == []
    window.close()


@flow(DESKTOP_LIGHT)
def test_filter_is_kept_and_chosen_messages_are_deleted(
    browser: Any, filled: RunningInstallation, signed_in: SignedIn
) -> None:
    window = Window(browser, filled, storage_state=signed_in.state)
    page, rest, queue = window.page, filled.rest(), f"kept-{uuid.uuid4().hex[:8]}"
    page.on("dialog", lambda dialog: dialog.accept("Red ones") if dialog.type == "prompt" else dialog.accept())
    rest.post("/v1/queues", json={"name": queue}).raise_for_status()
    messages = [{"body": body} for body in ("red 1", "red 2", "blue")]
    rest.post(f"/v1/queues/{queue}/messages", json={"messages": messages}).raise_for_status()
    address = url_of(filled, f"{signed_in.path}queues/{queue}/messages")
    page.goto(f"{address}?text=red")
    page.get_by_role("button", name="Save the filter").click()
    page.goto(address)
    page.get_by_label("Saved filters").select_option("Red ones")
    page.wait_for_url("**?text=red")
    page.locator("input[name=chosen]").first.check()
    page.get_by_label("All that are shown").check()
    window.see("2 chosen")
    with page.expect_download() as kept:
        page.get_by_role("link", name="Download", exact=True).first.click()
    assert kept.value.suggested_filename == f"{queue}-messages.jsonl"
    page.locator("[data-chosen-bar]").get_by_role("button", name="Delete").click()
    window.see("2 of 2 messages are deleted.")
    page.locator("details.message .line").first.wait_for()
    assert page.locator("details.message .line").all_inner_texts() == ["blue"]
    window.close()


@flow(PHONE_DARK)
def test_definitions_are_looked_at_and_imported(browser: Any, filled: RunningInstallation, signed_in: SignedIn) -> None:
    window = Window(browser, filled, storage_state=signed_in.state)
    page, queue = window.page, f"told-{uuid.uuid4().hex[:8]}"
    page.goto(url_of(filled, f"{signed_in.path}definitions"))
    with page.expect_download() as kept:
        page.get_by_role("link", name="Download as JSON").click()
    document = json.loads(kept.value.path().read_text())
    assert "orders" in [one["name"] for one in document["queues"]]
    document["queues"].append({"name": queue, "attributes": {"DelaySeconds": "5"}})
    page.get_by_label("Or the document").fill(json.dumps(document))
    page.get_by_role("button", name="Show what would change").click()
    window.see("DelaySeconds")
    page.get_by_role("button", name="Import these changes").click()
    page.locator("tr", has_text=queue).get_by_text("Created").wait_for()
    window.close()


@flow(DESKTOP_DARK)
def test_operator_sees_the_nodes(browser: Any, installation: RunningInstallation) -> None:
    window = Window(browser, installation)
    page = window.page
    open_link(page, link_of(installation, "--operator"))
    page.get_by_role("heading", name="Nodes").wait_for()
    assert page.locator("tbody tr", has_text="Up").count() >= installation.node_count
    installation.sqs().create_queue(QueueName="on-all-nodes")  # its partition has a replica on each of three nodes
    page.on("dialog", lambda dialog: dialog.accept())
    first, second = map(node_name, installation.node_ids()[:2])
    page.get_by_role("button", name=f"Drain node {first}").click()
    window.see(f"Without node {first}, 2 active nodes are left")
    window.choose("Cluster")
    partition = page.locator("tr", has_text="on-all-nodes:0").locator("td").first.inner_text()
    for label, number in (("Partition", partition), ("From node", first), ("To node", second)):
        page.get_by_label(label, exact=True).fill(number)
    page.get_by_role("button", name="Move the replica").click()
    window.see(f"Node {second} holds a replica of partition {partition} already.")
    window.choose("Cluster")
    page.get_by_role("button", name=f"Drain node {first}").wait_for()  # it is active still
    window.choose("Accounts")
    page.get_by_placeholder("Id, name, title or address of a member").fill("tests")
    page.get_by_role("link", name="tests", exact=True).wait_for()
    window.close()


@flow(PHONE_LIGHT)
def test_link_of_the_launcher_is_good_once(browser: Any, installation: RunningInstallation) -> None:
    told = json.loads(installation.command("console-link", "--account", "tests", "--json").stdout)
    assert set(told) == {"url", "good_for_seconds"}
    first, second = Window(browser, installation), Window(browser, installation)
    open_link(first.page, told["url"])
    second.page.goto(told["url"])
    second.page.wait_for_url(lambda at: "#" not in at)  # nor is it in the history
    with second.page.expect_navigation() as refused:
        second.page.get_by_role("button", name="Sign in", exact=True).click()
    assert refused.value.status == 400
    first.close()
    second.close()


@flow(DESKTOP_LIGHT)
def test_policy_is_written_given_to_a_key_and_tried(browser: Any, installation: RunningInstallation) -> None:
    window = Window(browser, installation)
    page, name = window.page, f"send-{uuid.uuid4().hex[:8]}"
    open_link(page, link_of(installation, "--account", "tests"))
    base = f"/console/a/{account_of(page)}"
    page.goto(url_of(installation, f"{base}/new-policy"))
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="JSON", exact=True).click()
    text = page.locator("[data-policy-text]")
    rest = '  "Action": "sqs:SendMessage", "Resource": "*"}]}'
    lines = ['{"Version": "2012-10-17", "Statement": [', ' {"Effect": "allow",', rest]
    text.wait_for()
    text.fill("\n".join(lines))
    page.get_by_role("button", name="line 2").click()
    assert page.evaluate("document.activeElement.selectionStart") == len(lines[0]) + 1
    page.get_by_role("button", name="Form", exact=True).click()
    window.see("The form cannot show this policy")
    text.fill("\n".join(lines).replace("allow", "Allow"))
    window.see("Nothing is wrong with this policy")
    page.get_by_role("button", name="Form", exact=True).click()
    page.get_by_text("Choose actions from the list").click()
    page.get_by_role("button", name="sqs:ReceiveMessage", exact=True).click()
    page.locator("#lint pre").get_by_text("sqs:ReceiveMessage").wait_for()
    page.get_by_role("button", name="Create the policy").click()
    window.see(f"The policy {name} is created")
    page.get_by_role("link", name="Try it").click()
    page.wait_for_url("**/simulator?*")
    page.locator("input[name=action]").fill("sqs:ReceiveMessage sqs:PurgeQueue")
    page.get_by_role("button", name="Simulate").click()
    page.wait_for_url("**/simulator?*PurgeQueue*")
    window.see("Not allowed")
    assert page.get_by_text("Allowed", exact=True).count() == 1
    page.goto(url_of(installation, f"{base}/keys"))
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("May do").select_option(name)
    page.get_by_role("button", name="Create a key").click()
    window.see("shown now and never again")
    page.goto(url_of(installation, f"{base}/policies/{name}"))
    page.set_viewport_size(PHONE)
    assert window.fits(), "nothing runs out of a phone's window"
    window.close()


@flow(PHONE_DARK)
def test_operator_acts_as_a_member_under_a_banner(browser: Any, installation: RunningInstallation) -> None:
    link_of(installation, "--account", "tests")  # the account has an owner then
    window = Window(browser, installation)
    page = window.page
    open_link(page, link_of(installation, "--operator"))
    page.goto(url_of(installation, "/console/operators/accounts?q=tests"))
    page.get_by_role("link", name="tests", exact=True).click()
    page.get_by_label("Reason").last.fill("Ticket 4711")
    page.get_by_role("button", name="Act as this member").click()
    window.see("You act as")
    window.choose("Queues")
    page.wait_for_url("**/queues")
    window.see("You act as")
    page.set_viewport_size(PHONE)
    assert window.fits()
    page.get_by_role("button", name="Stop acting").click()
    window.see("You act as yourself again.")
    window.close()
