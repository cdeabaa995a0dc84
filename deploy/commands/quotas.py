"""`quotas ...`: quotas of an account or of the installation, requests for more, and an account's sending."""

from __future__ import annotations

import argparse
from typing import Any

from deploy import management, output
from deploy.installation import Installation

QUOTA_COLUMNS = ["QUOTA", "VALUE", "DEFAULT", "IN USE", "UNIT"]
REQUEST_COLUMNS = ["ID", "ACCOUNT", "QUOTA", "VALUE", "REASON"]


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    said = management.operate(installation, installation.load_state(), "quotas", *arguments_of(options))
    if options.json:
        output.data_json(said)
    elif options.verb == "requests":
        output.table(REQUEST_COLUMNS, [request_row(one) for one in said["requests"]], "no request waits for an answer")
    elif options.verb in ("approve", "refuse"):
        output.data(f"{said['name']} {said['value']} for {said['account_id']}: {said['state']}")
    elif options.verb == "resume":
        show_resumed(options.account, said)
    else:
        output.table(QUOTA_COLUMNS, [quota_row(one) for one in said["quotas"]])
        if said["sending_stopped"]:
            output.data(output.red(f"sending is stopped: {said['sending_stopped']}"))
        if said["sends_per_s"]:
            output.data(output.red(f"a budget is used up; messages a second that may be sent: {said['sends_per_s']}"))
    return 0


def show_resumed(account: str, said: dict[str, Any]) -> None:
    output.data(f"sending is resumed: {account} may send")
    lifted = said["lifted"]
    if lifted:
        until = f"{lifted['until']}, or its change"
        output.say(f"the budget {lifted['budget']} is used up: it does not stop sending before {until}")
    if said["sends_per_s"]:
        output.say(f"a budget throttles it still; messages a second that may be sent: {said['sends_per_s']}")


def arguments_of(options: argparse.Namespace) -> list[str]:
    """Of the management command. Options carry their value with them: a value may begin with a dash."""
    arguments = [options.verb]
    for name in ("account", "queue", "key", "reason", "answer"):
        if getattr(options, name, None):
            arguments.append(f"--{name}={getattr(options, name)}")
    if options.verb == "set":
        arguments += ["--", *options.values]
    elif options.verb in ("approve", "refuse"):
        arguments += ["--", str(options.id)]
    return arguments


def quota_row(one: dict[str, Any]) -> list[str]:
    cells = [one["name"], *(one[name] for name in ("value", "default", "in_use")), one["unit"]]
    return ["-" if cell is None else str(cell) for cell in cells]


def request_row(one: dict[str, Any]) -> list[str]:
    return [str(one[name]) for name in ("id", "account", "name", "value", "reason")]
