"""The storage nodes as operators see and change them: what they say of themselves, system alarms, drains and moves.

The control plane asks the nodes; it keeps nothing of what they say.
"""
