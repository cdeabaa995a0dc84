"""`python -m deploy.make_certificates [--stay] AUTHORITY FOLDER CLUSTER ROLE/NUMBER...` makes the certificates that are
missing or near their end, FOLDER/ROLE-NUMBER/ca.pem and own.pem: for containers, and for operators without an authority
of their own; `up` does it itself. With --stay it looks again every hour, until SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from deploy.certificates import settle
from deploy.limits import CERTIFICATE_LOOK_S
from storage_nodes.trust.names import SCHEME, InnerName, NameRefused, parse_name

USAGE = "usage: python -m deploy.make_certificates [--stay] AUTHORITY FOLDER CLUSTER ROLE/NUMBER...\n"


def main(arguments: list[str]) -> int:
    stays = arguments[:1] == ["--stay"]
    authority, folder, cluster_id, *asked = arguments[stays:] + [""] * max(0, 3 - len(arguments[stays:]))
    try:
        names = [_name(cluster_id, one) for one in asked]
    except NameRefused as error:
        sys.stderr.write(f"{error}\n{USAGE}")
        return 2
    if not names or not cluster_id:
        sys.stderr.write(USAGE)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while True:
        for made in settle(Path(authority), Path(folder), names):
            sys.stdout.write(f"made the certificate of {made}\n")
        if not stays or stop.wait(CERTIFICATE_LOOK_S):
            return 0


def _name(cluster_id: str, asked: str) -> InnerName:
    """Raises NameRefused."""
    return parse_name(f"{SCHEME}x/{asked}")._replace(cluster_id=cluster_id)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
