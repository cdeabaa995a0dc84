"""Lifecycle of queues: from the wish in the database to partitions in the storage plane, and away again."""
