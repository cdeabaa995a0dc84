"""Webhooks: addresses of customers that workers call when alarms change, signed (docs/webhooks.md)."""
