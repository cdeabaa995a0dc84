"""May two inputs be told apart by the time that they take?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# The usual bound on Welch's t of two classes that may not be told apart.
WELCH_MAX = 4.5


def welch(one: Sequence[int], other: Sequence[int]) -> float:
    """Of the samples without the slowest tenth, which is the machine's."""
    first, second = (sorted(samples)[: len(samples) * 9 // 10] for samples in (one, other))
    spread = statistics.variance(first) / len(first) + statistics.variance(second) / len(second)
    return (statistics.fmean(first) - statistics.fmean(second)) / math.sqrt(spread) if spread else 0.0
