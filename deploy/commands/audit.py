"""`audit export` prints the audit trail of an account; `audit trim` removes old entries."""

from __future__ import annotations

import argparse

from deploy import limits, management, output
from deploy.installation import Installation
from deploy.outside_servers import DATABASE_URL, is_outside
from deploy.postgres import administrator_url


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    state = installation.load_state()
    if options.verb == "export":
        asked = [f"--account={options.account}", f"--form={options.form}", "--", "export"]
        said = management.run_manage(installation, state, ["operate_audit", *asked], limits.MIGRATE_DEADLINE_S)
        output.verbatim(said.rstrip("\n"))
        return 0
    # The application may only add to the trail.
    owner_url = "" if is_outside(DATABASE_URL) else administrator_url(installation, state)
    asked = [f"--older-than-days={options.older_than_days}", "--", "trim"]
    management.run_manage(installation, state, ["operate_audit", *asked], limits.MIGRATE_DEADLINE_S, owner_url)
    output.say(f"entries older than {options.older_than_days} days are removed")
    return 0
