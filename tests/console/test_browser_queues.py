"""Queues in a real browser, beside test_browser.py: presets and settings, schedules, redrive of chosen messages."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.console.pictures import PHONE, account_of, browsing, link_of, open_link, url_of
from tests.console.variants import DESKTOP_DARK, DESKTOP_LIGHT, PHONE_DARK, PHONE_LIGHT, flow
from tests.console.window import Window
from tests.support.installation import RunningInstallation, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def state(browser: Any, installation: RunningInstallation) -> tuple[Any, str]:
    """Cookies of the owner of `tests`, and the address of its first page: a link costs a command of the launcher."""
    context = browser.new_context()
    page = context.new_page()
    open_link(page, link_of(installation, "--account", "tests"))
    found = context.storage_state(), url_of(installation, f"/console/a/{account_of(page)}/")
    context.close()
    return found


@pytest.fixture
def window(browser: Any, installation: RunningInstallation, state: tuple[Any, str]) -> Iterator[Window]:
    found = Window(browser, installation, storage_state=state[0])
    found.page.on("dialog", lambda dialog: dialog.accept())
    found.page.goto(state[1])
    yield found
    found.close()


@flow(DESKTOP_LIGHT)
def test_queue_is_created_from_a_preset_and_its_settings_are_changed(window: Window) -> None:
    page, name = window.page, f"jobs-{uuid.uuid4().hex[:8]}"
    page.goto(f"{page.url}new-queue")
    page.get_by_role("link", name="Background jobs").click()
    page.wait_for_url("**preset=**")
    page.get_by_label("Name", exact=True).fill(name)
    page.locator("#same").get_by_text("'VisibilityTimeout': '300'").wait_for()
    page.get_by_role("button", name="Create the queue").click()
    window.see(f"The queue {name} is ready.")
    page.locator("main").get_by_role("link", name="Settings", exact=True).click()
    page.wait_for_url("**/edit")
    page.get_by_label("Visibility timeout").fill("45")
    page.get_by_role("button", name="Save the changes").click()
    window.see("The settings are changed.")
    page.get_by_role("link", name="Tags", exact=True).click()
    page.get_by_label("Key", exact=True).fill("team")
    page.get_by_label("Value", exact=True).fill("checkout")
    page.get_by_role("button", name="Set the tag").click()
    window.see("The tags are changed.")
    page.get_by_role("link", name="Permissions", exact=True).click()
    page.get_by_label("Label").fill("partner")
    page.get_by_label("Account ids").fill("123456789012")
    page.get_by_role("button", name="Permit", exact=True).click()
    window.see("The permissions are changed.")
    page.set_viewport_size(PHONE)
    assert window.fits()


@flow(PHONE_LIGHT)
def test_page_is_at_rest_once_what_the_page_before_asked_for_has_come(window: Window) -> None:
    """The bar on top tells of requests, also of one whose element is gone when its answer comes."""
    page = window.page
    held: list[Any] = []
    page.goto(f"{page.url}new-queue")
    page.route("**/same-as", lambda route: held.append(route))
    with page.expect_request("**/same-as"):
        page.get_by_label("Name", exact=True).fill("later")
    page.remove_locator_handler(page.locator("html.working"))  # it would wait for the answer
    page.get_by_role("link", name="Cancel").click()
    page.wait_for_url("**/queues")
    page.locator("html.working").wait_for(state="attached")
    held[0].fulfill(body="")
    page.locator("html:not(.working)").wait_for(state="attached")


@flow(PHONE_DARK)
def test_schedule_is_created_paused_and_deleted_and_a_single_message_is_cancelled(
    window: Window, installation: RunningInstallation
) -> None:
    page = window.page
    queue, _ = installation.new_queue()
    with installation.rest() as rest:
        later = {"body": "hourly", "delay_ms": 7_200_000}
        rest.post(f"/v1/queues/{queue}/messages", json=later).raise_for_status()
    page.goto(f"{page.url}queues/{queue}/schedules")
    page.locator("summary", has_text="New schedule").click()
    page.get_by_label("Name", exact=True).fill("nightly")
    page.get_by_label("Cron").fill("61 * * * *")
    page.get_by_label("Body").fill("{}")
    page.get_by_role("button", name="Create the schedule").click()
    page.locator(".note.bad, .error").first.wait_for()
    page.get_by_label("Cron").fill("0 3 * * *")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_role("button", name="Create the schedule").click()
    window.see("The schedule nightly is created.")
    row = page.locator("tr", has_text="nightly")
    row.get_by_role("button", name="Pause").click()
    page.locator("tr", has_text="nightly").get_by_text("Paused").wait_for()
    page.locator("tr", has_text="nightly").get_by_role("button", name="Delete").click()
    window.see("No schedule")
    row = page.locator("tr", has_text="hourly")
    row.locator("summary", has_text="Another time").click()
    due = datetime.now(UTC) + timedelta(days=3)
    row.get_by_label("New time, UTC").fill(due.strftime("%Y-%m-%dT%H:%M"))
    row.get_by_role("button", name="Change the time").click()
    window.see("The scheduled message has another time.")
    page.locator("tr", has_text="hourly").get_by_text(due.strftime("%Y-%m-%d %H:%M:00 UTC")).wait_for()
    page.locator("tr", has_text="hourly").get_by_role("button", name="Cancel").click()
    window.see("The scheduled message is cancelled.")
    window.see("No single message is scheduled.")


@flow(DESKTOP_DARK)
def test_chosen_dead_letters_are_moved_back_and_a_slow_redrive_is_cancelled(
    window: Window, installation: RunningInstallation
) -> None:
    page = window.page
    dead, source = dead_letters(installation, 5)
    start = page.url
    page.goto(f"{start}queues/{dead}/messages")
    page.locator("input[name=chosen]").first.check()
    page.get_by_role("button", name="Move back …").click()
    page.wait_for_url("**/moves?ids=**")
    page.get_by_role("button", name="Move", exact=True).click()
    page.locator("#tasks", has_text="Completed").get_by_text("1 moved").wait_for()
    page.get_by_label("Ids").fill("")
    page.get_by_label("Messages a second").fill("1")
    page.get_by_role("button", name="Move", exact=True).click()
    page.locator("#tasks").get_by_role("button", name="Pause").click()
    window.see("The redrive is paused.")
    page.locator("#tasks").get_by_role("button", name="Cancel").click()
    window.see("The redrive is being cancelled.")
    page.locator("#tasks .task").first.get_by_text("Cancelled").wait_for()
    page.goto(f"{start}queues/{source}/messages")
    page.locator("details.message .line").first.wait_for()
    assert page.locator("details.message").count() < 5


def dead_letters(installation: RunningInstallation, count: int) -> tuple[str, str]:
    """Names of a queue that holds so many, and of the queue that they come from."""
    name, url = installation.new_queue()
    sqs = installation.sqs()
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": 1}}'
    source, source_url = installation.new_queue(RedrivePolicy=policy, VisibilityTimeout="0")
    for number in range(count):
        sqs.send_message(QueueUrl=source_url, MessageBody=f"order {number}")

    def all_dead() -> bool:
        sqs.receive_message(QueueUrl=source_url, MaxNumberOfMessages=10, VisibilityTimeout=0)
        with installation.rest() as rest:
            found = rest.post(f"/v1/queues/{name}/messages/peek", json={"limit": 10}).json()["messages"]
        return len(found) >= count

    wait_until(all_dead, 30, 0.1)
    return name, source
