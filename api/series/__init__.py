"""Series: what each queue did and held, minute by minute, and its alarms (docs/metrics.md)."""
