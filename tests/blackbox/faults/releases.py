"""Storage nodes of other releases: which feature level each one speaks from its next start on.

As `harm.py`, by the sitecustomize of `inside/`. A node that is told a level speaks none above it, and folds none; one
that is told a level which no release has yet speaks that as well: for it nothing is folded otherwise, but every other
node takes what it says and writes for that of a later release. Nothing of the product knows of it.
"""

from __future__ import annotations

from pathlib import Path

VARIABLE = "PENSTOCK_BLACKBOX_LEVEL"


class Releases:
    """Of all nodes of an installation; `settings` is the environment it must be started with."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def settings(self) -> dict[str, str]:
        return {VARIABLE: str(self._directory / "level-{node}")}

    def speaks(self, node: int, level: int) -> None:
        """From its next start on."""
        (self._directory / f"level-{node}").write_text(str(level))
