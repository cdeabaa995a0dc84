"""Deployment: the supervisor behind `./penstock up`, and the other commands of the launcher.

Starts the processes of the planes by their documented commands and settings (docs/processes.md); imports of the planes
are only those of a client (`storage_nodes.client`, `storage_nodes.model`).
"""
