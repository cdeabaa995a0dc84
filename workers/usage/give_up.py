"""`python -m workers.usage.give_up --lake DIR FILE ...`: damaged files of the lake are given up, for good.

A file whose windows came from elsewhere is ingested again first (`ingest_files` takes it, as what was made of it is
damaged); one of the stream is restored from a copy if there is any. Only what cannot be had again is given up: the
storage of its hours is billed as if it had said nothing from then on, and what was settled from it stays.
"""

from __future__ import annotations

import argparse
import sys

from workers.spark_jobs.lake.manifest import Lake
from workers.usage.lake_losses import give_up_file


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m workers.usage.give_up", description="Give up files of the lake.")
    parser.add_argument("--lake", required=True, metavar="DIR")
    parser.add_argument("files", nargs="+", metavar="FILE", help="as the report of quarantine names it: windows/...")
    options = parser.parse_args(arguments)
    lake, is_done = Lake(options.lake), True
    for file in options.files:
        why_not = give_up_file(lake, file)
        is_done = is_done and not why_not
        sys.stderr.write(f"{why_not or f'{file}: given up'}\n")
    return 0 if is_done else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
