"""Streams: partitions that are read by offset. Design: docs/storage.md."""
