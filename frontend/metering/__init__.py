"""Request-level counters of this process. What is billed is counted by the storage plane, from the log."""
