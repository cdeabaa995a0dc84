"""Every bound of people, sessions, memberships and account states, in one place."""

from __future__ import annotations

# --- operators ----------------------------------------------------------------------------------------------
# An operator acts as a member for so long, then has to begin again.
ACTING_S_MAX = 30 * 60
ACTING_REASON_CHARACTERS_MAX = 200

# --- people -------------------------------------------------------------------------------------------------
EMAIL_CHARACTERS_MAX = 254
PERSON_NAME_CHARACTERS_MAX = 100
PASSWORD_CHARACTERS_MIN = 12
PASSWORD_CHARACTERS_MAX = 128
PASSWORD_DISTINCT_CHARACTERS_MIN = 5

# --- Argon2id: 28 ms of one core at best, 130 ms on two busy ones ---------------------------------------------
ARGON2_MEMORY_KIB = 19_456
ARGON2_PASSES = 2
ARGON2_LANES = 1
# More than this many at once would only make each slower, and take their memory at once; the others wait so long.
HASHES_AT_ONCE_MAX = 2
HASH_WAIT_S_MAX = 5.0

# --- tokens -------------------------------------------------------------------------------------------------
TOKEN_BYTES = 32
TOKEN_CHARACTERS_MAX = 64
SIGN_UP_TOKEN_S = 24 * 3600
PASSWORD_RESET_TOKEN_S = 3600
CHALLENGE_TOKEN_S = 300
INVITATION_TOKEN_S = 7 * 24 * 3600
CONSOLE_LINK_TOKEN_S = 600
# Of one kind and person; the oldest one goes when another is made.
TOKENS_PER_PERSON_MAX = 5
# Wrong passwords or codes given with one token, after which it is gone.
TOKEN_ATTEMPTS_MAX = 5

# --- sessions -----------------------------------------------------------------------------------------------
SESSION_AGE_S_MAX = 7 * 24 * 3600
SESSION_IDLE_S_MAX = 12 * 3600
# `last_seen_at` is written at most this often per session.
SESSION_SEEN_EVERY_S = 60
# The one that was not used for the longest time ends when another begins.
SESSIONS_PER_PERSON_MAX = 50
USER_AGENT_CHARACTERS_MAX = 200
# Security settings are changed only this long after the password (and code) were given.
RECENT_AUTHENTICATION_S_MAX = 600

# --- attempts: so many at once, then one more for each `_EVERY_S` -----------------------------------------------
SIGN_IN_PER_ADDRESS_BURST, SIGN_IN_PER_ADDRESS_EVERY_S = 10, 60
# From where the person has signed in of late, in the place of the count above.
SIGN_IN_PER_FAMILIAR_SOURCE_BURST, SIGN_IN_PER_FAMILIAR_SOURCE_EVERY_S = 10, 60
# The password is given again by who is signed in.
PASSWORD_PER_PERSON_BURST, PASSWORD_PER_PERSON_EVERY_S = 10, 60
SIGN_IN_PER_SOURCE_BURST, SIGN_IN_PER_SOURCE_EVERY_S = 60, 5
SIGN_UP_PER_ADDRESS_BURST, SIGN_UP_PER_ADDRESS_EVERY_S = 5, 1_200
SIGN_UP_PER_SOURCE_BURST, SIGN_UP_PER_SOURCE_EVERY_S = 20, 180
RESET_PER_ADDRESS_BURST, RESET_PER_ADDRESS_EVERY_S = 5, 1_200
RESET_PER_SOURCE_BURST, RESET_PER_SOURCE_EVERY_S = 20, 180
TOKEN_PER_SOURCE_BURST, TOKEN_PER_SOURCE_EVERY_S = 30, 10
CODE_PER_PERSON_BURST, CODE_PER_PERSON_EVERY_S = 10, 60
INVITATION_PER_ACCOUNT_BURST, INVITATION_PER_ACCOUNT_EVERY_S = 50, 60
# Each attempt also removes so many counts that are back at nothing.
ATTEMPT_RATES_SWEPT = 2
# An IPv6 customer holds a network of this length: its addresses count as one source.
SOURCE_IPV6_PREFIX_BITS = 64
FAMILIAR_SOURCE_DAYS = 90
# The one that was not used for the longest time is forgotten first.
FAMILIAR_SOURCES_PER_PERSON_MAX = 20
SOURCE_AGE_MS_MAX = 60_000
SOURCE_CHARACTERS_MAX = 100

# --- second factor --------------------------------------------------------------------------------------------
TOTP_SECRET_BYTES = 20
TOTP_DIGITS = 6
TOTP_STEP_S = 30
# Steps before and after the present one whose code is accepted.
TOTP_DRIFT_STEPS = 1
RECOVERY_CODES = 10
RECOVERY_CODE_BYTES = 10
CODE_CHARACTERS_MAX = 32

# --- passkeys -------------------------------------------------------------------------------------------------
PASSKEYS_PER_PERSON_MAX = 20
PASSKEY_NAME_CHARACTERS_MAX = 60
PASSKEY_CHALLENGE_BYTES = 32
PASSKEY_CHALLENGE_S = 300
# What a browser sends of a new passkey, or of one that signs in. Without attestation both stay below 3 KiB.
PASSKEY_RESPONSE_CHARACTERS_MAX = 16 * 1024
# The longest one of the standard.
CREDENTIAL_ID_BYTES_MAX = 1_023
CREDENTIAL_KEY_BYTES_MAX = 2_048
# Each new challenge also removes so many expired ones.
PASSKEY_CHALLENGES_SWEPT = 2

# --- accounts -------------------------------------------------------------------------------------------------
ACCOUNT_TITLE_CHARACTERS_MAX = 100
MEMBERS_PER_ACCOUNT_MAX = 1_000
ACCOUNTS_PER_PERSON_MAX = 100
INVITATIONS_PER_ACCOUNT_MAX = 100
STATE_REASON_CHARACTERS_MAX = 200
CLOSING_GRACE_DAYS = 30
# Accounts that one run of the upkeep closes.
# Between two rounds of upkeep: a schedule that is restarted counts from then on, so the interval is short.
UPKEEP_INTERVAL_S = 600
CLOSED_AT_ONCE_MAX = 100

# --- errands: what is done after the answer -------------------------------------------------------------------
ERRANDS_WAITING_MAX = 1_000
# Sign-ups that were never confirmed are forgotten after this long.
UNCONFIRMED_DAYS_MAX = 7

assert SIGN_UP_TOKEN_S < UNCONFIRMED_DAYS_MAX * 24 * 3600, "a token outlives no person"
assert RECENT_AUTHENTICATION_S_MAX < SESSION_IDLE_S_MAX < SESSION_AGE_S_MAX
assert PASSKEY_CHALLENGE_S <= CHALLENGE_TOKEN_S, "the token of a sign-in outlives what its passkey signs"
assert SESSION_SEEN_EVERY_S < SESSION_IDLE_S_MAX
assert TOKEN_BYTES * 8 >= 256
assert PASSWORD_CHARACTERS_MIN < PASSWORD_CHARACTERS_MAX
