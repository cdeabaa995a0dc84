"""`policies list`, and `policies review`: stored policies that cannot be understood any more."""

from __future__ import annotations

import argparse
import json

from deploy import management, output
from deploy.errors import EXIT_FAILED
from deploy.installation import Installation

COLUMNS = ["ACCOUNT", "HOLDER", "MEMBER", "WHAT IS WRONG"]


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    state = installation.load_state()
    if options.verb == "list":
        policies = management.operate(installation, state, "review_policies", f"--account={options.account}")
        if options.json:
            output.data_json(policies)
        else:
            for policy in policies:
                output.data(f"{policy['name']}  {json.dumps(policy['policy'])}")
            if not policies:
                output.say("the account has no named policies")
        return 0
    found = management.operate(installation, state, "review_policies")
    if options.json:
        output.data_json(found)
    elif found:
        output.table(COLUMNS, [[one["account_id"], one["holder"], one["member"], one["error"]] for one in found])
    else:
        output.say("every stored policy is understood")
    return EXIT_FAILED if found else 0
