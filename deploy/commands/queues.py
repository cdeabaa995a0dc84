"""`queues list | deleted | restore | let-go`: the queues of an account, and deleted ones that are kept."""

from __future__ import annotations

import argparse

from deploy import management, output
from deploy.installation import Installation

COLUMNS = ["QUEUE", "ID", "STATE", "CREATED", "DELETED", "KEPT UNTIL"]
FIELDS = ("name", "queue_id", "state", "created_at", "deleted_at", "kept_until")
NONE = {"list": "the account has no queues", "deleted": "no deleted queue of this account is kept"}


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    said = management.operate(installation, installation.load_state(), "operate_queues", *arguments_of(options))
    if options.json:
        output.data_json(said)
    elif options.verb in ("list", "deleted"):
        output.table(COLUMNS, [[str(one[field] or "-") for field in FIELDS] for one in said], NONE[options.verb])
    else:
        output.say(f"queue {said['name']} is {said['state']}")
    return 0


def arguments_of(options: argparse.Namespace) -> list[str]:
    """Of the management command. Options carry their value with them: a value may begin with a dash."""
    given = [f"--account={options.account}"]
    if getattr(options, "new_name", None):
        given.append(f"--as={options.new_name}")
    named = [options.queue] if hasattr(options, "queue") else []
    return [*given, "--", options.verb, *named]
