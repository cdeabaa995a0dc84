"""Judge policies drawn at random with Penstock's evaluator and with another one, and tell where they differ.

    python -m tests.frontend.authz.oracle --pairs N [--seed N]

The other one is a package of npm, installed from its lock into the project's state directory (`policy-oracle-...`,
which can be deleted at any time). Exit code: 0 where the two agree on all settled ground, 1 where they do not, 2 where
the other one cannot be had here. What the edges are: docs/policies.md.
"""

from __future__ import annotations

import argparse
import sys

from tests.clients.environments import NotInstallable
from tests.frontend.authz.oracle.comparison import compare, lines
from tests.frontend.authz.oracle.node import find_node

EXIT_DIFFER = 1
EXIT_NOT_RUN = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frontend.authz.oracle", description="a second opinion")
    parser.add_argument("--pairs", type=int, default=10_000, help="how many (default: 10000)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        node = find_node()
        directory = node.install()
    except NotInstallable as error:
        sys.stderr.write(f"not run: {error}\n")
        return EXIT_NOT_RUN
    outcome = compare(node, directory, arguments.pairs, arguments.seed)
    sys.stdout.writelines(f"{line}\n" for line in lines(outcome))
    return EXIT_DIFFER if outcome.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
