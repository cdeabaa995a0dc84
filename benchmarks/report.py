"""How every benchmark reports: a table for people, one JSON line for machines, with versions and settings."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import version

_VERSIONS_OF = ("uvloop", "uvicorn", "msgspec", "channels", "cryptography", "google-crc32c")


def percentile(values: list[float], percent: float) -> float:
    """Nearest-rank percentile of a non-empty list."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


class Report:
    """Named figures with their units, in the order in which they were measured."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.figures: list[tuple[str, float, str]] = []

    def add(self, label: str, value: float, unit: str) -> None:
        self.figures.append((label, value, unit))
        sys.stderr.write(f"  {label}: {value:,.2f} {unit}\n")
        sys.stderr.flush()

    def print(self) -> None:
        width = max(len(label) for label, _, _ in self.figures)
        lines = [f"{label:<{width}}  {value:>14,.2f}  {unit}" for label, value, unit in self.figures]
        settings = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            **{name: version(name) for name in _VERSIONS_OF},
        }
        figures = [
            {"label": label.strip(), "value": round(value, 3), "unit": unit} for label, value, unit in self.figures
        ]
        sys.stdout.write("\n".join([f"benchmark {self.name}", *lines, ""]))
        sys.stdout.write(json.dumps({"benchmark": self.name, "settings": settings, "figures": figures}) + "\n")
