"""Queue delivery as a fold over a partition log. Design: docs/storage.md, "Queue machine"."""
