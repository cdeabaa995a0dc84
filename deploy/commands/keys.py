"""`keys create`: a key for an account, which is made if it is not there; `list`, `disable`, `enable`, `revoke`,
`rotate`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from deploy import demo, management, output
from deploy.errors import EXIT_USAGE, CommandError
from deploy.installation import Installation
from deploy.limits import POLICY_FILE_BYTES_MAX
from deploy.state import endpoint

COLUMNS = ["ACCESS KEY ID", "NAME", "STATE", "RESTRICTED", "CREATED", "EXPIRES", "LAST USED"]
FIELDS = ("access_key_id", "name", "state", "restricted", "created_at", "expires_at", "last_used_at")


def run(options: argparse.Namespace) -> int:
    do = {"create": create, "list": show, "disable": switch, "enable": switch, "revoke": revoke, "rotate": rotate}
    return do[options.verb](options)


def create(options: argparse.Namespace) -> int:
    policy = None if options.policy is None else read_policy(options.policy)
    installation = Installation(options.data_dir)
    state = installation.load_state()
    more = name_and_end(options)
    made = management.create_key(installation, state, options.account, policy, options.scope, options.queue, more)
    if made.pop("account_created", False):
        output.say(f"There was no account {options.account!r}: it was made, with the id {made['account_id']}.")
    for note in made.pop("notes", []):
        output.say(note)
    return show_secrets({**made, "endpoint": endpoint(state)}, options.json)


def name_and_end(options: argparse.Namespace) -> list[str]:
    """As `create_key` of manage.py takes them, where they are given."""
    name = [] if options.name is None else [f"--key-name={options.name}"]
    return name if options.expires is None else [*name, f"--expires={options.expires}"]


def show(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    state = installation.load_state()
    keys = management.operate(installation, state, "operate_keys", "list", "--", options.account)
    if options.json:
        output.data_json(keys)
    else:
        output.table(COLUMNS, [[cell(key[field]) for field in FIELDS] for key in keys], "the account has no keys")
    return 0


def cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def switch(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    key = management.operate(installation, installation.load_state(), "operate_keys", options.verb, options.key)
    output.say(f"{key['access_key_id']} is {key['state']}.")
    return 0


def revoke(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    management.operate(installation, installation.load_state(), "operate_keys", "revoke", options.key)
    if demo.is_demo_key(installation, options.key):
        output.say(demo.refused_text(installation, options.key))
    else:
        output.say(f"{options.key} opens nothing any more.")
    return 0


def rotate(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    state = installation.load_state()
    grace = [] if options.grace is None else ["--grace", str(options.grace)]
    key = management.operate(installation, state, "operate_keys", "rotate", options.key, *grace)
    if demo.is_demo_key(installation, options.key):
        demo.replace_demo_key(installation, key)
        output.say("The new key is the demo account's: `up` prints it, `send` and `receive` use it.")
    return show_secrets({**key, "endpoint": endpoint(state)}, options.json)


def show_secrets(key: dict[str, Any], as_json: bool) -> int:
    if as_json:
        output.data_json(key)
        return 0
    for name, value in key.items():
        output.data(f"{name:18} {value}")
    output.say("The secrets are shown this once.")
    return 0


def read_policy(path: str) -> str:
    """The text of the file; `-` is stdin."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"the policy cannot be read: {error}", EXIT_USAGE) from None
    if len(text.encode()) > POLICY_FILE_BYTES_MAX:
        raise CommandError(f"the policy file has more than {POLICY_FILE_BYTES_MAX} bytes", EXIT_USAGE)
    return text
