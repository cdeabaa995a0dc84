"""Queues: desired state and how far storage follows it, attributes, data keys."""
