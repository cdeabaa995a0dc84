"""What trials over HTTP are judged by. Pure functions over what callers noted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.blackbox.checkers import percentile
from tests.blackbox.raw_http import LOST

ACCEPTED = range(200, 300)
# Refusals that say "later": each must say when.
LATER = (429, 503)


class Sent(NamedTuple):
    """One send, once: its value, the status it was answered with, and how long that took."""

    value: str
    status: int
    seconds: float
    retry_after: str = ""


class Given(NamedTuple):
    """One hand-out of a message; leases are longer than the run, so each stored copy is handed out once."""

    value: str
    delivery_count: int


def judge_sends(sent: Sequence[Sent], given: Iterable[Given], within_s: float) -> dict[str, list[str]]:
    """Every send acknowledged in time, every acknowledged one there, none there twice, nothing that nobody sent."""
    copies = Counter(one.value for one in given)
    known = {one.value for one in sent}
    refused = [one for one in sent if one.status not in ACCEPTED]
    accepted = [one for one in sent if one.status in ACCEPTED]
    return {
        "not acknowledged": [f"{one.value}: {_status(one)} after {one.seconds:.1f} s" for one in refused],
        "slow": [f"{one.value}: {one.seconds:.1f} s" for one in accepted if one.seconds > within_s],
        "lost": [one.value for one in accepted if not copies[one.value]],
        "stored twice": [f"{value}: {count} copies" for value, count in sorted(copies.items()) if count > 1],
        "unexpected": sorted(copies.keys() - known),
    }


def judge_drain(found: dict[str, list[str]], given_count: int, in_flight: int) -> dict[str, list[str]]:
    """`judge_sends` after a drain that deletes nothing: what is in flight beyond what was handed out is leased to
    nobody. That many messages are not lost, but a lease is."""
    hidden = in_flight - given_count
    if hidden <= 0:
        return {**found, "lease lost": []}
    text = f"{hidden} messages are leased to nobody, {min(hidden, len(found['lost']))} of them acknowledged"
    return {**found, "lost": found["lost"][hidden:], "lease lost": [text]}


def judge_leases(given: Iterable[Given], in_flight_at_end: int, there_at_end: int) -> dict[str, list[str]]:
    """After everything that was handed out is deleted, nothing is leased: a lease that nobody got would be."""
    again = [one for one in given if one.delivery_count > 1]
    return {
        "lease lost": [f"{in_flight_at_end} messages are leased to nobody"] if in_flight_at_end else [],
        "left behind": [f"{there_at_end} messages were not handed out"] if there_at_end else [],
        "handed out again": [f"{one.value}: delivery {one.delivery_count}" for one in again],
    }


def judge_refusals(refusals: Iterable[Sent]) -> dict[str, list[str]]:
    """Every refusal is one that says when to come again; nothing else goes wrong."""
    found: dict[str, list[str]] = {"without Retry-After": [], "failed otherwise": []}
    for one in refusals:
        if one.status not in LATER:
            found["failed otherwise"].append(f"{one.value}: {_status(one)} after {one.seconds:.1f} s")
        elif not one.retry_after:
            found["without Retry-After"].append(f"{one.value}: {one.status}")
    return found


def judge_memory(rss_mib: dict[int, list[float]], limit_mib: float) -> dict[str, list[str]]:
    """The highest resident set of each node, against the budget."""
    peaks = {node: max(samples, default=0.0) for node, samples in rss_mib.items()}
    return {"over budget": [f"node {node}: {peak:.0f} MiB" for node, peak in peaks.items() if peak > limit_mib]}


def judge_after(before_s: Sequence[float], after_s: Sequence[float], factor: float) -> dict[str, list[str]]:
    """The 99th percentile after something is back, against what it was before it went."""
    was_s, is_s = percentile(before_s, 0.99), percentile(after_s, 0.99)
    slower = not is_s <= factor * was_s
    return {"slower after": [f"p99 {is_s * 1000:.0f} ms, {was_s * 1000:.0f} ms before"] if slower else []}


def judge_others(alone_s: Sequence[float], beside_s: Sequence[float], bound_s: float) -> dict[str, list[str]]:
    """Nobody else is affected: the others' slowest call beside the harm stays within a bound (or what it was alone)."""
    worst_s, usual_s = max(beside_s, default=float("nan")), max(alone_s, default=0.0)
    held = worst_s <= max(bound_s, usual_s)
    return {"others affected": [] if held else [f"slowest {worst_s:.2f} s, {usual_s:.2f} s before"]}


def _status(one: Sent) -> str:
    return "no answer" if one.status == LOST else str(one.status)
