"""The storage client: what front ends, workers and tools use to talk to storage nodes."""

from storage_nodes.client.storage_client import StorageClient

__all__ = ["StorageClient"]
