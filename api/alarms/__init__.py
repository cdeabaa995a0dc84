"""Alarms on metrics of queues (docs/metrics.md): judged by workers from the series, told by mail."""
