"""Raft, one machine per partition; docs/storage.md, section "Raft"."""
