"""The storage client: what front ends, workers and tools use to talk to storage nodes."""

from storage_nodes.client.storage_client import StorageClient
from storage_nodes.client.stream_listing import streams_tagged

__all__ = ["StorageClient", "streams_tagged"]
