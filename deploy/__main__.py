"""The command line of `./penstock`: arguments here, one module a command in `deploy.commands`, imported when used."""

from __future__ import annotations

import argparse
import importlib
import sys
import tomllib
from pathlib import Path

from deploy import limits, output
from deploy.errors import EXIT_FAILED, CommandError
from storage_nodes.ids import CLUSTER_FIRST, CLUSTER_NUMBER_MAX, parse_node_name

# Commands whose arguments belong to another program are handed on before argparse sees them.
PASSING_ON = {"test": "run_tests", "bench": "run_benchmarks"}


def main(arguments: list[str]) -> int:
    try:
        if arguments and arguments[0] in PASSING_ON:
            return int(importlib.import_module(f"deploy.commands.{PASSING_ON[arguments[0]]}").run(arguments[1:]))
        understood = parser()
        options = understood.parse_args(arguments)
        # Imported here: what was mistyped is answered before anything is installed.
        output.hints = importlib.import_module("deploy.hints").hints_for(options.data_dir, understood)
        return int(importlib.import_module(f"deploy.commands.{options.module}").run(options))
    except CommandError as error:
        output.say(f"penstock: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        output.say("penstock: interrupted")
        return EXIT_FAILED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away (`| head`): nobody is left to tell
        return EXIT_FAILED
    finally:
        output.hints = None


def version() -> str:
    """As the project's file says: the code runs from where it stands, and is installed nowhere."""
    project = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]
    return str(project["version"])


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="penstock", description="A managed message queue, compatible with Amazon SQS.")
    root.add_argument("--version", action="version", version=f"penstock {version()}")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_lifecycle(commands)
    add_keys(commands)
    add_accounts(commands)
    add_policies(commands)
    add_console(commands)
    add_queues(commands)
    add_audit(commands)
    add_quotas(commands)
    add_report(commands)
    add_billing(commands)
    add_transfer(commands)
    add_spark(commands)
    test = commands.add_parser("test", help="run the whole test suite (arguments go to pytest)")
    test.add_argument("pytest_arguments", nargs="*")
    bench = commands.add_parser("bench", help="run the benchmarks, or the named one")
    bench.add_argument("name", nargs="?")
    return root


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, module: str, text: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.set_defaults(module=module)
    command.add_argument("--data-dir", metavar="DIR", help="the installation (default: PENSTOCK_DATA_DIR or .penstock)")
    return command


def add_lifecycle(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    up = add_command(commands, "up", "up", "start everything, or resume what is in the data directory")
    up.add_argument("--port", type=int, metavar="P", help=f"public port (default {limits.DEFAULT_PORT})")
    up.add_argument("--host", metavar="H", help="public address (default 127.0.0.1; 0.0.0.0 serves the network)")
    up.add_argument("--nodes", type=int, metavar="N", help=f"storage nodes (default {limits.DEFAULT_NODES})")
    up.add_argument(
        "--cluster-number",
        type=int,
        metavar="N",
        help=f"which its ids carry for ever, {CLUSTER_FIRST} to {CLUSTER_NUMBER_MAX} (default {CLUSTER_FIRST})",
    )
    up.add_argument(
        "--front-ends", type=int, metavar="N", help="processes that share the public port (default: one for two cores)"
    )
    up.add_argument("--tls-certificate", metavar="FILE", help="the public port speaks TLS: certificate and chain, PEM")
    up.add_argument("--tls-key", metavar="FILE", help="its private key, PEM; readable by its owner only")
    up.add_argument("--no-tls", action="store_true", help="the public port speaks plain HTTP again")
    up.add_argument("--redirect-port", type=int, metavar="P", help="plain HTTP here sends to https (0: nothing does)")
    up.add_argument("--detach", action="store_true", help="return once the endpoint answers")
    up.add_argument("--report-to", type=int, help=argparse.SUPPRESS)
    add_command(commands, "down", "down", "stop everything cleanly")
    status = add_command(commands, "status", "status", "every process and node, and who leads, since when and why")
    status.add_argument("--json", action="store_true")
    status.add_argument("--partition", type=int, metavar="N", help="only this partition: who leads, since when, why")
    add_node(commands)
    scrub = add_command(commands, "scrub", "scrub", "how the check of all stored files goes, or begin one")
    scrub.add_argument("--start", action="store_true", help="begin a pass now")
    scrub.add_argument("id", type=node_of, nargs="?", metavar="ID", help="only this storage node")
    logs = add_command(commands, "logs", "logs", "the logs of all processes")
    logs.add_argument("-f", "--follow", action="store_true")
    logs.add_argument("name", nargs="*", metavar="NAME", help="only these logs (frontend, node-1, ...)")
    doctor = add_command(commands, "doctor", "doctor", "what is used from where, and what is missing")
    doctor.add_argument("--json", action="store_true")


def node_of(text: str) -> int:
    """A storage node as people or as JSON name it."""
    try:
        return parse_node_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_node(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    node = commands.add_parser("node", help="storage nodes: list, add, drain, decommission, move, start, stop")
    verbs = node.add_subparsers(dest="verb", required=True)
    for verb in ("start", "stop"):
        command = add_command(verbs, verb, "node", f"{verb} one storage node")
        command.add_argument("id", type=node_of, metavar="ID")
        if verb == "stop":
            command.add_argument("--force", action="store_true", help="also where no majority is up without it")
    listed = add_command(verbs, "list", "node", "every storage node: its state and what it holds")
    listed.add_argument("--json", action="store_true")
    add_command(verbs, "add", "node", "start one storage node more, which joins the cluster")
    drain = add_command(verbs, "drain", "node", "move every replica off a node, which stays in the cluster")
    drain.add_argument("id", type=node_of, metavar="ID")
    drain.add_argument("--undo", action="store_true", help="take a drained or leaving node back")
    leave = add_command(verbs, "decommission", "node", "drain a node, take it out of the cluster, stop it")
    leave.add_argument("id", type=node_of, metavar="ID")
    leave.add_argument("--dead", action="store_true", help="it died for good: do without it")
    move = add_command(verbs, "move", "node", "move one replica of a partition to another node")
    move.add_argument("partition", type=int, metavar="PARTITION")
    move.add_argument("--from", type=node_of, metavar="ID", dest="source")
    move.add_argument("--to", type=node_of, metavar="ID", dest="target")
    move.add_argument("--cancel", action="store_true", help="give up the move that is under way")


def add_keys(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    keys = commands.add_parser("keys", help="API keys").add_subparsers(dest="verb", required=True)
    create = add_command(keys, "create", "keys", "create a key, and its account if it does not exist yet")
    create.add_argument(
        "--account", required=True, metavar="NAME", help="name of the account, which is made, or its id"
    )
    create.add_argument("--name", metavar="KEY_NAME", help="what the key is for (default: default)")
    create.add_argument("--expires", metavar="TIME", help="it ends then: 2026-12-01T06:30, in UTC without an offset")
    create.add_argument("--policy", metavar="FILE", help="an identity policy: what the key may do (- reads stdin)")
    scope = "instead of a policy: send, receive, look or redrive (may be repeated)"
    create.add_argument("--scope", action="append", default=[], metavar="SCOPE", help=scope)
    queue = "of the scopes: a queue, * and ? for any characters (may be repeated; default: all)"
    create.add_argument("--queue", action="append", default=[], metavar="NAME", help=queue)
    create.add_argument("--json", action="store_true")
    listed = add_command(keys, "list", "keys", "the keys of an account, without their secrets")
    listed.add_argument("--account", required=True, metavar="NAME", help="name or id of the account")
    listed.add_argument("--json", action="store_true")
    for verb, text in (
        ("disable", "the key opens nothing until it is enabled again"),
        ("enable", "takes that back"),
    ):
        add_command(keys, verb, "keys", text).add_argument("key", metavar="ACCESS_KEY_ID")
    revoke = add_command(keys, "revoke", "keys", "from now on the key opens nothing")
    revoke.add_argument("key", metavar="ACCESS_KEY_ID")
    rotate = add_command(keys, "rotate", "keys", "a new key with the policies of an old one, which ends")
    rotate.add_argument("key", metavar="ACCESS_KEY_ID")
    rotate.add_argument("--grace", type=int, metavar="S", help="the old key goes on for S seconds (default: a day)")
    rotate.add_argument("--json", action="store_true")


def add_accounts(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    accounts = commands.add_parser("accounts", help="accounts: list, create, configure, suspend, resume, close, reopen")
    verbs = accounts.add_subparsers(dest="verb", required=True)
    listed = add_command(verbs, "list", "accounts", "every account and its state")
    listed.add_argument("--json", action="store_true")
    create = add_command(verbs, "create", "accounts", "a new account, without a key")
    create.add_argument("account", metavar="NAME", help="what commands call it, beside its id")
    for verb, text in (
        ("suspend", "the keys of the account open nothing until it is resumed"),
        ("resume", "takes a suspension back"),
        ("close", "the keys open nothing; after 30 days the account is closed for good"),
        ("reopen", "takes a closing back, within the 30 days"),
    ):
        command = add_command(verbs, verb, "accounts", text)
        command.add_argument("account", metavar="ACCOUNT", help="name or id of the account")
        if verb in ("suspend", "close"):
            command.add_argument("--reason", default="", help="kept with the account and in the audit trail")
    rules = add_command(verbs, "configure", "accounts", "what the account has chosen about deletions")
    rules.add_argument("account", metavar="ACCOUNT", help="name or id of the account")
    rules.add_argument("--deletion-protection", choices=["on", "off"], help="on: no queue can be deleted")
    rules.add_argument("--deletion-grace-days", type=int, metavar="N", help="deleted queues are kept for N days")


def add_queues(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    queues = commands.add_parser("queues", help="queues of an account; deleted ones that are kept: restore, let-go")
    verbs = queues.add_subparsers(dest="verb", required=True)
    for verb, text in (
        ("list", "the queues of an account"),
        ("deleted", "deleted queues that can be restored, and until when"),
        ("restore", "a deleted queue is there again, with the messages that it held"),
        ("let-go", "a deleted queue is not kept any longer"),
    ):
        command = add_command(verbs, verb, "queues", text)
        command.add_argument("--account", required=True, metavar="NAME", help="name or id of the account")
        command.add_argument("--json", action="store_true")
        if verb in ("restore", "let-go"):
            command.add_argument("queue", metavar="QUEUE", help="id of the deleted queue, or its name")
        if verb == "restore":
            command.add_argument("--as", dest="new_name", metavar="NAME", help="its new name")


def add_audit(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    audit = commands.add_parser("audit", help="the audit trail: export, trim")
    verbs = audit.add_subparsers(dest="verb", required=True)
    export = add_command(verbs, "export", "audit", "print the trail of an account, the oldest entry first")
    export.add_argument("--account", required=True, metavar="NAME", help="name or id of the account")
    export.add_argument("--form", choices=["jsonl", "csv"], default="jsonl")
    trim = add_command(verbs, "trim", "audit", "remove old entries of all accounts")
    trim.add_argument("--older-than-days", type=int, required=True, metavar="N", help="90 at least")


def add_policies(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    policies = commands.add_parser("policies", help="stored policies: list, review")
    verbs = policies.add_subparsers(dest="verb", required=True)
    listed = add_command(verbs, "list", "policies", "the named policies of an account")
    listed.add_argument("--account", required=True, metavar="NAME", help="name or id of the account")
    listed.add_argument("--json", action="store_true")
    review = add_command(verbs, "review", "policies", "policies that cannot be understood any more: they deny")
    review.add_argument("--json", action="store_true")


def add_console(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    link = add_command(commands, "console-link", "console_link", "print a one-time sign-in link to the console")
    link.add_argument("--account", metavar="NAME", help="as its owner; name or id of the account")
    link.add_argument("--operator", action="store_true", help="as the operator of the installation")
    link.add_argument("--json", action="store_true")


def add_quotas(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    quotas = commands.add_parser("quotas", help="quotas of accounts and of the installation")
    verbs = quotas.add_subparsers(dest="verb", required=True)
    texts = {
        "list": "every quota: its value, its default, what is in use",
        "set": "give quotas other values (NAME=VALUE, or NAME=default)",
        "stop": "refuse what an account sends, with a reason; receiving goes on",
        "resume": "take that back",
    }
    for verb, text in texts.items():
        command = add_command(verbs, verb, "quotas", text)
        command.add_argument("--json", action="store_true")
        if verb in ("stop", "resume"):
            command.add_argument("--account", required=True, metavar="NAME")
        else:
            command.add_argument("--account", metavar="NAME", help="name or id (default: the installation as a whole)")
            command.add_argument("--queue", metavar="NAME", help="one queue of the account")
            command.add_argument("--key", metavar="ID", help="one key of the account")
        if verb == "set":
            command.add_argument("values", nargs="+", metavar="NAME=VALUE")
        if verb == "stop":
            command.add_argument("--reason", required=True)
    add_command(verbs, "requests", "quotas", "requests of accounts for other quotas").add_argument(
        "--json", action="store_true"
    )
    for verb in ("approve", "refuse"):
        command = add_command(verbs, verb, "quotas", f"{verb} a request")
        command.add_argument("id", type=int, metavar="ID")
        command.add_argument("--answer", default="", help="told to the account")
        command.add_argument("--json", action="store_true")


def add_spark(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    spark = commands.add_parser("spark", help="Spark, which counts usage: what it needs")
    verbs = spark.add_subparsers(dest="verb", required=True)
    add_command(verbs, "install", "spark", "install Spark's packages, and Java where that is possible")


def add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = commands.add_parser("report", help="settled usage, invoices, what is not billed, open months")
    verbs = report.add_subparsers(dest="verb", required=True)
    texts = {
        "usage": "what an account used in a month, per queue and kind",
        "invoice": "an account's invoice of a month, or its draft",
        "quarantine": "records of a month that are not billed, and why",
    }
    for verb, text in texts.items():
        command = add_command(verbs, verb, "report", text)
        which = "name or id of the account" + (" (default: all)" if verb == "quarantine" else "")
        command.add_argument("--account", metavar="NAME", help=which)
        command.add_argument("--period", required=True, metavar="YYYY-MM", help="the month")
        if verb != "quarantine":
            now = "settle the hours that are over first, and show what is not settled as provisional"
            command.add_argument("--now", action="store_true", help=now)
        if verb == "usage":
            by = "in parts, with what each costs; settled or not. Of keys the requests alone are counted"
            command.add_argument("--by", choices=["day", "origin", "tag", "key"], help=by)
            command.add_argument("--tag", metavar="KEY", help="the key of the tag, for --by tag")
        form = command.add_mutually_exclusive_group()
        form.add_argument("--json", action="store_true", help="all kinds, and more than the table has")
        if verb == "invoice":
            form.add_argument("--pdf", metavar="FILE", help="write the invoice, or the draft, into this file")
            form.add_argument("--csv", metavar="FILE", help="the same as CSV, with each queue's share")
            note = "the note of this number, which corrects the invoice, instead of the invoice"
            command.add_argument("--note", metavar="NUMBER", help=note)
    invoices = add_command(verbs, "invoices", "report", "an account's invoices, and the notes that correct them")
    invoices.add_argument("--account", metavar="NAME", help="name or id of the account")
    invoices.add_argument("--json", action="store_true")
    months = add_command(verbs, "months", "report", "which months are open, and why")
    months.add_argument("--json", action="store_true")


def amount_minor(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        says = f"an amount is a whole number, in the smallest unit of the currency: 5000 for 50.00, and not {text!r}"
        raise argparse.ArgumentTypeError(says) from None


def add_billing(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    billing = commands.add_parser("billing", help="price plans, taxes, credits, sellers and buyers, payments")
    verbs = billing.add_subparsers(dest="verb", required=True)
    plans = add_command(verbs, "plans", "billing", "every price plan; with --account those that it has, with its taxes")
    plans.add_argument("--account", metavar="NAME", help="name or id of the account")
    plans.add_argument("--json", action="store_true")
    terms = add_command(verbs, "terms", "billing", "print the latest terms of a plan as JSON, to change and to add")
    terms.add_argument("--code", default="standard", metavar="CODE", help="the plan (default: standard)")
    plan = add_command(verbs, "plan", "billing", "add a price plan, or the next version of one")
    plan.add_argument("--code", required=True, metavar="CODE", help="small letters, digits and hyphens")
    plan.add_argument("--name", metavar="TEXT", help="what customers see, of a new plan")
    plan.add_argument("--terms", metavar="FILE", help="JSON, as `billing terms` prints it")
    since = "of a next version, and still to come, in UTC; one that begins with the same hour is replaced"
    plan.add_argument("--from", dest="since", metavar="HOUR", help=since)
    back = "take the plan's last version back, which is still to come"
    plan.add_argument("--withdraw", action="store_true", help=back)
    assign = add_command(verbs, "assign", "billing", "give an account a plan, and its taxes")
    assign.add_argument("--account", required=True, metavar="NAME", help="name or id of the account")
    assign.add_argument("--code", metavar="CODE", help="the plan")
    since = "an hour in UTC like 2026-12-01T00:00 (default, before the first invoice: since the account was opened)"
    assign.add_argument("--from", dest="since", metavar="HOUR", help=since)
    tax = "like VAT=19, which is 19 percent (may be repeated; without it the account has none from then on)"
    assign.add_argument("--tax", action="append", default=[], metavar="NAME=PERCENT", help=tax)
    back = "take the account's last plan back, which is still to come"
    assign.add_argument("--withdraw", action="store_true", help=back)
    credit = add_command(verbs, "credit", "billing", "grant a credit, which the next invoices use up")
    credit.add_argument("--account", required=True, metavar="NAME", help="name or id of the account")
    credit.add_argument("--name", required=True, metavar="TEXT", help="stands on the invoice")
    credit.add_argument("--currency", required=True, metavar="CODE", help="that of the account's plan, like USD")
    minor = "in the smallest unit of the currency: 5000 is 50.00 USD"
    credit.add_argument("--amount-minor", type=amount_minor, required=True, metavar="N", help=minor)
    credit.add_argument("--ends", metavar="HOUR", help="in UTC (default: once it is used up)")
    seller = add_command(verbs, "seller", "billing", "who invoices say sells: show it, or name it")
    buyer = add_command(verbs, "buyer", "billing", "who invoices say an account is: show it, or name it")
    buyer.add_argument("--account", required=True, metavar="NAME", help="name or id of the account")
    for command in (seller, buyer):
        command.add_argument("--name", metavar="TEXT", help="as the law knows it; all that was given before goes")
        line = "a line of the address (may be repeated)"
        command.add_argument("--address", action="append", default=[], metavar="LINE", help=line)
        command.add_argument("--tax-id", metavar="TEXT", help='like "VAT ATU12345678"')
        command.add_argument("--remove", action="store_true", help="name nobody from now on")
        command.add_argument("--json", action="store_true")
    line = "a line that says how to pay (may be repeated)"
    seller.add_argument("--payment", action="append", default=[], metavar="LINE", help=line)
    days = "invoices name the day by which to pay, so long after their issue (default: none)"
    seller.add_argument("--payment-days", type=int, metavar="N", help=days)
    correct = add_command(verbs, "correct", "billing", "issue a note where usage says another amount than an invoice")
    pay = add_command(verbs, "pay", "billing", "record a payment of an issued invoice")
    for command in (correct, pay):
        command.add_argument("--account", required=True, metavar="NAME", help="name or id of the account")
        command.add_argument("--period", required=True, metavar="YYYY-MM", help="the month of the invoice")
    correct.add_argument("--reason", required=True, metavar="TEXT", help="is printed on the note")
    pay.add_argument("--received", required=True, metavar="DAY", help="like 2026-12-03")
    pay.add_argument("--reference", required=True, metavar="TEXT", help="of the transfer; once for an invoice")
    again = "count a closed month again from the lake and compare it with its invoices; nothing is changed"
    month_again = add_command(verbs, "recount", "billing", again)
    month_again.add_argument("--period", required=True, metavar="YYYY-MM", help="a month that is over")
    month_again.add_argument("--account", metavar="NAME", help="name or id of the account (default: all)")
    month_again.add_argument("--json", action="store_true")
    settle = add_command(
        verbs, "settle", "billing", "settle hours with usage that another program counted, CSV on stdin"
    )
    settle.add_argument("--from", dest="since", required=True, metavar="HOUR", help="the first hour, in UTC")
    settle.add_argument("--to", required=True, metavar="HOUR", help="the end of the last one")
    recount = "the rows are all there is for these hours: others that they have are removed"
    settle.add_argument("--recount", action="store_true", help=recount)
    back = f"{minor} (default: all that is due; what went back is negative)"
    pay.add_argument("--amount-minor", type=amount_minor, metavar="N", help=back)


def add_transfer(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    send = add_command(commands, "send", "send", "send each line of stdin as a message; creates a missing queue")
    send.add_argument("queue", metavar="QUEUE")
    receive = add_command(commands, "receive", "receive", "write each message of a queue as a line, and delete it")
    receive.add_argument("queue", metavar="QUEUE")
    receive.add_argument("--max", type=int, metavar="N", help="stop after N messages")
    receive.add_argument(
        "--idle", type=float, metavar="S", default=limits.RECEIVE_IDLE_S,
        help=f"stop when the queue was empty for S seconds (default {limits.RECEIVE_IDLE_S:.0f})",
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
