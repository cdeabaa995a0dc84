"""Promises that the product does not keep yet, or not in this tree: what rests on them is drawn and checked only where
the switch is on. Each is one line; with all of them on there is nothing to switch, and this file goes."""

from __future__ import annotations

# Nodes compare clocks, leader time neither falls nor stands still, and nothing expires before a majority says so.
CLOCKS_AGREE = True
# A client's own repetition never makes a copy, and a lease that comes late to it is handed back.
REPEATS_ARE_RECOGNISED = True
# Connections wait instead of being cut by their own burst; uncommitted bytes and a node's buffers are bounded.
BUFFERS_ARE_BOUNDED = True
