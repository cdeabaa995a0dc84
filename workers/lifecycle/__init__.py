"""Lifecycle of queues: from the desired state in the database to partitions in the storage plane, and away again."""
