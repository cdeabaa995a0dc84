"""Schedules: messages that a queue gets again and again, by a cron expression in a time zone."""
