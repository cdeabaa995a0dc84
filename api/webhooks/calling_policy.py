"""What the operator's settings let webhooks call."""

from __future__ import annotations

from api.settings.environment import environment
from api.webhooks.addresses import CallPolicy, parse_networks, parse_ports


def call_policy() -> CallPolicy:
    env = environment()
    return CallPolicy(parse_networks(env.webhook_networks), parse_ports(env.webhook_ports))
