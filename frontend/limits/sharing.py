"""How the front ends share a rate: by what each of them is asked for. Pure.

Each front end reports, in parts of the quota, what an account asked it for. Who asks for little gets that and some more
(max-min fairness), those who ask for more than is left share it equally, and what is not asked for is spread equally:
there is something to begin with anywhere. The shares of one quota add up to 1.

Surface: other planes may import this module.
"""

from __future__ import annotations

from collections.abc import Sequence

# A front end may be asked for more within the next second than in the last one.
HEADROOM = 1.2
# What all front ends together keep of a quota that only one of them is asked for.
KEPT = 0.05


def divide(demands: Sequence[float]) -> list[float]:
    """The share of each, in the order of the demands."""
    count = len(demands)
    left = 1.0 - KEPT
    shares = [KEPT / count] * count
    wanted = sorted((max(0.0, demand * HEADROOM - KEPT / count), index) for index, demand in enumerate(demands))
    for place, (want, index) in enumerate(wanted):
        granted = min(want, left / (count - place))
        shares[index] += granted
        left -= granted
    return [share + left / count for share in shares]
