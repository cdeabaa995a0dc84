"""The rule of today: an account's keys may do everything with the account's own queues, and nothing with others'.

Every way in asks here before anything of the queue is looked at, so a no cannot depend on what exists.
"""

from __future__ import annotations

from frontend.authn.principal import Principal


def is_allowed(principal: Principal, action: str, account_id: str) -> bool:
    """`action` is the SQS action name; `account_id` owns the queue that is named."""
    assert action
    return principal.account_id == account_id
