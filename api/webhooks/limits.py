"""Every bound of webhooks, in one place."""

from __future__ import annotations

WEBHOOKS_PER_ACCOUNT_MAX = 10
WEBHOOK_NAME_CHARACTERS_MAX = 80
WEBHOOK_URL_CHARACTERS_MAX = 2_000
# Of what is called for one change; names and reasons have bounds of their own.
WEBHOOK_BODY_BYTES_MAX = 8_192
WEBHOOK_SECRET_BYTES = 32
WEBHOOK_GRACE_S_DEFAULT = 86_400
WEBHOOK_GRACE_S_MAX = 7 * 86_400

# --- one call -----------------------------------------------------------------------------------------------
# All of it: name, connection, TLS, request, the head of the answer.
CALL_S_MAX = 10.0
# Addresses of one name that are looked at, and tried: one that answers neither yes nor no costs half of the call.
CALL_ADDRESSES_MAX = 16
CALL_ADDRESSES_TRIED_MAX = 2
CALL_CONNECT_S_MAX = 4.0
# The resolver cannot be interrupted: a name that hangs keeps a thread until the resolver gives up.
RESOLVER_THREADS = 16

# --- deliveries ---------------------------------------------------------------------------------------------
# Pauses after the first attempts; about 20 hours together.
DELIVERY_PAUSES_S = (15, 60, 300, 1_800, 7_200, 21_600, 43_200)
DELIVERY_ATTEMPTS_MAX = len(DELIVERY_PAUSES_S) + 1
# Deliveries that are begun for one webhook within an hour; the history of alarms has every change.
DELIVERIES_PER_HOUR_MAX = 60
# Tests of all webhooks of an account: so many at once, then one more each.
TESTS_PER_ACCOUNT_BURST = 60
TESTS_PER_ACCOUNT_EVERY_S = 60
# That have ended, of one webhook.
DELIVERIES_KEPT_MAX = 100
DELIVERIES_KEPT_DAYS = 30
DELIVERIES_LISTED_MAX = 50
DELIVERIES_REMOVED_AT_ONCE_MAX = 1_000
# Who claimed a delivery calls within this time; a worker that died leaves it to another one then.
DELIVERY_CLAIM_S = 60

# --- rounds of the workers ----------------------------------------------------------------------------------
DELIVER_INTERVAL_S = 5
DELIVER_ROUND_S = 20.0
CALLS_AT_ONCE_MAX = 32
# Of one account: an endpoint that never answers keeps this many places for CALL_S_MAX, and no more.
CALLS_OF_ACCOUNT_MAX = 2
DELIVER_LOOK_S = 0.25

assert DELIVERIES_PER_HOUR_MAX < DELIVERIES_KEPT_MAX, "what was begun within the hour is there to be counted"
assert DELIVER_ROUND_S + CALL_S_MAX < DELIVERY_CLAIM_S, "a claim outlives the call that is made under it"
assert DELIVERY_PAUSES_S[1] >= DELIVERY_CLAIM_S, "a worker that died costs no more than a pause"
assert 2 * CALL_CONNECT_S_MAX < CALL_S_MAX
assert CALLS_OF_ACCOUNT_MAX < CALLS_AT_ONCE_MAX
