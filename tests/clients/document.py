"""Outcomes as a table for the terminal, and as docs/sqs_clients.md."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from tests.clients.outcome import Outcome

PATH = Path(__file__).resolve().parents[2] / "docs" / "sqs_clients.md"

_HEAD = """# SQS clients

Programs of other makers, unmodified, against one temporary installation. Written by `python -m tests.clients`, which
installs each client in an environment of its own from a lock with hashes (`tests/clients/locks`,
`tests/clients/javascript/package-lock.json`) and runs the programs under `tests/clients`. The suite runs boto3 in both
protocols and Celery on every change; the others need packages from registries and are run by this command.

A client is told of Penstock by its endpoint, a region and a key, and by nothing else:

```
export AWS_ENDPOINT_URL_SQS=http://127.0.0.1:9324 AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1
export AWS_ACCESS_KEY_ID=AKPS... AWS_SECRET_ACCESS_KEY=...
```
"""

_NOTES = """## What to know

- **AWS command line, version 1** ignores `AWS_ENDPOINT_URL_SQS` in every region that Amazon has, `us-east-1` among
  them: its own code then fills in Amazon's address. Give `--endpoint-url`, or start Penstock with a `PENSTOCK_REGION`
  that is no region of Amazon's; both ways are tried above. Version 2 is not on PyPI and was not tried.
- **boto3 before 1.28** does not read `AWS_ENDPOINT_URL_SQS`: give `endpoint_url`. Before 1.28.81 it speaks the query
  protocol.
- **Region**: a request signed for another region than the installation's is refused (SignatureDoesNotMatch).
- **Celery** needs `broker_url="sqs://"` where boto3 reads the variable, else `sqs://KEY:SECRET@HOST:PORT` with the
  transport options `is_secure: False` and `region`. There is no fanout, so `worker_enable_remote_control` is off. As on
  Amazon SQS, an ETA beyond the visibility timeout makes copies: the worker holds the task, its message becomes visible
  and is received again. `delay_seconds` (kombu 5.7) lets the queue hold it instead. `app.control.purge()` returns a
  number that kombu counts several times over.
- **sqs-consumer** deletes a message and stops its heartbeat afterwards, so a heartbeat that falls into that moment is
  reported by the library as MessageNotInflight; nothing is lost.
- **aiosqs** takes https for granted (its client's attribute endpoint_url can be set). Its `receive_message` finds
  nothing in XML that has a namespace, as that of SQS has: receive with another client.
"""


def table(outcomes: Sequence[Outcome]) -> str:
    rows = ["| client | version | checks | result |", "|---|---|---|---|"]
    for outcome in outcomes:
        count = f"{len(outcome.results) - len(outcome.failures)} of {len(outcome.results)}"
        rows.append(
            f"| {outcome.client} | {outcome.version} | {'' if outcome.not_run else count} | {result(outcome)} |"
        )
    return "\n".join(rows) + "\n"


def result(outcome: Outcome) -> str:
    if outcome.not_run:
        return f"not run: {_one_line(outcome.not_run)}"
    return "passed" if outcome.passed else "FAILED"


def failures(outcomes: Sequence[Outcome]) -> str:
    """What went wrong, in the program's own words."""
    return "".join(
        f"\n{outcome.client}: {failed.title}\n{failed.detail}\n" for outcome in outcomes for failed in outcome.failures
    )


def document(outcomes: Sequence[Outcome]) -> str:
    machine = f"Last run: {platform.system()}, Python {platform.python_version()}."
    parts = [_HEAD, machine + "\n", table(outcomes)]
    parts += [_tried(outcome) for outcome in outcomes if not outcome.not_run]
    return "\n".join([*parts, _NOTES])


def _tried(outcome: Outcome) -> str:
    rows = [f"## {outcome.client}", ""]
    rows += [f"- {'passed' if one.passed else '**FAILED**'}: {one.title}" for one in outcome.results]
    return "\n".join(rows) + "\n"


def _one_line(text: str) -> str:
    """Safe in a table cell; an installer's words are long and may name addresses."""
    return text.splitlines()[0].partition(":")[0].replace("|", "/") if text else ""
