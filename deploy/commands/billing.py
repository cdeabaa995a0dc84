"""`billing plans|terms|plan|assign|credit|seller|buyer|correct|pay|settle|recount`: prices, who has which, credits, who
sells and buys, notes, payments, usage that another program counted, and closed months that are counted again."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from deploy import limits, management, output, usage_now
from deploy.errors import CommandError
from deploy.installation import Installation
from deploy.state import State

PLAN_COLUMNS = ["CODE", "NAME", "CURRENCY", "VERSIONS", "LATEST FROM", "ACCOUNTS GIVEN IT"]
ACCOUNT_COLUMNS = ["PLAN", "FROM", "TAXES"]
# Options that go to the management command as they are, with the names that it has for them.
HANDED_ON = ("account", "code", "name", "since", "currency", "amount_minor", "ends", "period", "reason", "received",
             "reference", "tax_id", "payment_days")  # fmt: skip
NAMES = {"since": "from", "amount_minor": "amount-minor", "tax_id": "tax-id", "payment_days": "payment-days"}
# Options that are given several times.
REPEATED = ("tax", "address", "payment")
PARTIES = ("seller", "buyer")


def run(options: argparse.Namespace) -> int:
    installation = Installation(options.data_dir)
    state = installation.load_state()
    if options.verb == "settle":
        return settle(installation, state, options)
    if options.verb == "recount":
        return recount(installation, state, options)
    arguments = ["billing_admin", options.verb, *arguments_of(options)]
    said = management.run_manage(installation, state, arguments, limits.REPORT_DEADLINE_S).strip()
    if options.verb == "terms":
        output.data_json(json.loads(said))
    elif options.verb in PARTIES:
        show_party(options, json.loads(said))
    elif options.verb == "plans":
        show_plans(options, json.loads(said))
    else:
        output.data(said)
    return 0


def settle(installation: Installation, state: State, options: argparse.Namespace) -> int:
    """The rows go from our standard input to the management command's, which is the same."""
    arguments = ["settle_usage", f"--from={options.since}", f"--to={options.to}"]
    arguments += ["--recount"] if options.recount else []
    said = management.run_manage_json(installation, state, arguments, limits.REPORT_DEADLINE_S)
    output.data(", ".join(f"{name} {said[name]}" for name in ("merged", "removed", "quarantined")))
    if said["quarantined"]:
        output.say("what is not billed, and why: ./penstock report quarantine --period YYYY-MM")
    return 0


def recount(installation: Installation, state: State, options: argparse.Namespace) -> int:
    """What the lake says of a month, against what was billed. No note is made: the command that makes one is shown."""
    arguments = [f"--period={options.period}", *([f"--account={options.account}"] if options.account else [])]
    found = usage_now.recount(installation, state, arguments)
    if options.json:
        output.data_json(found)
        return 0
    if found["equal"]:
        compared = output.counted(found["invoices"], "invoice")
        output.data(f"no difference: {compared} of {found['period']} compared with the lake, to the cent")
    else:
        rows = [
            [one["account"], one["invoice"], one["billed"], one["total"], one["currency"], f"{one['note']} note"]
            for one in found["differences"]
        ]
        rows += [[one["account"], "-", "0", one["total"], one["currency"], "-"] for one in found["not_invoiced"]]
        output.table(["account", "invoice", "billed", "difference", "currency", "would be"], rows)
    for one in found["differences"]:
        output.say(f"{one['invoice']}: {what_corrects(one, found['period'])}")
    for one in found["not_invoiced"]:
        output.say(f"{one['account']} has no invoice of {found['period']}: ./penstock report months says why")
    if found["is_partial"]:
        files = ", ".join(found["left_out"]) or "entries that were settled are gone"
        output.say(f"the lake lacks something ({files}): what was settled is taken where that is more")
    return 0


def what_corrects(difference: dict[str, Any], period: str) -> str:
    if difference["is_settled"]:
        account = difference["account"]
        return f"a note corrects it: ./penstock billing correct --account {account} --period {period} --reason TEXT"
    return "the settled usage says something else: count the month again first (docs/billing_steps.md), then correct it"


def arguments_of(options: argparse.Namespace) -> list[str]:
    """Options carry their value with them: a value may begin with a dash."""
    given = [(name, getattr(options, name, None)) for name in HANDED_ON]
    arguments = [f"--{NAMES.get(name, name)}={value}" for name, value in given if value is not None]
    arguments += [f"--{name}={value}" for name in REPEATED for value in getattr(options, name, ())]
    if options.verb == "plan":
        arguments.append(terms_or_withdrawal(options))
    elif options.verb == "assign":
        arguments += withdrawal(options)
    elif options.verb in PARTIES:
        arguments += removal(options)
    return arguments


def removal(options: argparse.Namespace) -> list[str]:
    """Of a seller or buyer. What is given takes the place of all that was given before, so it has a name."""
    others = ("address", "tax_id", "payment", "payment_days")
    is_given = any(getattr(options, name, None) not in (None, []) for name in others)
    if options.remove and (is_given or options.name is not None):
        raise CommandError("--remove goes without the other options")
    if is_given and options.name is None:
        raise CommandError("give all of it, with the name (--name): it takes the place of what was given before")
    return ["--remove"] if options.remove else []


def show_party(options: argparse.Namespace, found: dict[str, Any]) -> None:
    if options.json:
        output.data_json(found)
        return
    if not found:
        output.say(f"invoices name no {options.verb}" + ("" if options.verb == "seller" else " but the account"))
        return
    for line in (found["name"], *found.get("address", ()), found.get("tax_id", ""), *found.get("payment", ())):
        if line:
            output.data(line)
    if "payment_days" in found:
        output.data(f"to be paid within {output.counted(found['payment_days'], 'day')}")


def withdrawal(options: argparse.Namespace) -> list[str]:
    """Of a plan that an account has not yet."""
    if options.withdraw and any((options.code, options.since, options.tax)):
        raise CommandError("--withdraw takes the last plan back: it goes with --account alone")
    if not options.withdraw and options.code is None:
        raise CommandError("name the plan (--code CODE), or take the last one back (--withdraw)")
    return ["--withdraw"] if options.withdraw else []


def terms_or_withdrawal(options: argparse.Namespace) -> str:
    if options.withdraw:
        if any((options.terms, options.name, options.since)):
            raise CommandError("--withdraw takes the last version back: it goes with --code alone")
        return "--withdraw"
    if options.terms is None:
        raise CommandError("name the file with the terms (--terms FILE), or take the last version back (--withdraw)")
    # The command runs in another directory.
    terms = Path(options.terms).absolute()
    if not terms.is_file():
        raise CommandError(f"there is no file {options.terms}; ./penstock billing terms prints terms to start from")
    return f"--terms={terms}"


def show_plans(options: argparse.Namespace, found: list[dict[str, Any]]) -> None:
    if options.json:
        output.data_json(found)
    elif options.account:
        output.table(ACCOUNT_COLUMNS, [[one["code"], one["effective_from"], taxes_of(one)] for one in found])
    else:
        output.table(PLAN_COLUMNS, [plan_row(one) for one in found])
        output.say("An account that was given none has the plan standard. ./penstock billing terms prints the prices.")


def taxes_of(one: dict[str, Any]) -> str:
    return ", ".join(f"{tax['name']} {tax['percent']} %" for tax in one["taxes"]) or "-"


def plan_row(one: dict[str, Any]) -> list[str]:
    versions = one["versions"]
    since = "the beginning" if len(versions) == 1 else versions[-1]["effective_from"]
    return [one["code"], one["name"], one["currency"], str(len(versions)), since, str(one["accounts"])]
