"""Ticks of schedules become messages."""
