"""Queues: what was asked for (the wish) and how far it has come, attributes, data keys."""
