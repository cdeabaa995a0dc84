"""Bounds of what is stored of policies. Those of a document itself: frontend/authz/policy_limits.py."""

from __future__ import annotations

from frontend.authz.policy_limits import IDENTITY_POLICY_CHARACTERS_MAX

POLICY_NAME_CHARACTERS_MAX = 64
POLICIES_PER_ACCOUNT_MAX = 500
GROUP_NAME_CHARACTERS_MAX = 64
GROUPS_PER_ACCOUNT_MAX = 100
GROUPS_PER_MEMBER_MAX = 10
# Named policies that one key, member or group has.
POLICIES_ATTACHED_MAX = 10
# All policies of one key together: front ends and the metadata service hold them with its record, for up to 20,000
# keys each, so 330 MB where every key has as much as it may.
KEY_POLICIES_CHARACTERS_MAX = 16_384
# Texts whose patterns are known without reading them again: 6 KiB each at most.
POLICY_TEXTS_COUNTED_MAX = 512
KEY_TAGS_MAX = 50
TAG_KEY_CHARACTERS_MAX = 128
TAG_VALUE_CHARACTERS_MAX = 256
# The old key of a rotation goes on for this long: as asked, or a day.
ROTATION_GRACE_S_DEFAULT = 24 * 3600
ROTATION_GRACE_S_MAX = 7 * 24 * 3600
SIMULATED_ACTIONS_MAX = 50
SIMULATED_RESOURCES_MAX = 20
# Of one simulation: all callers share the processor.
SIMULATION_S_MAX = 2.0
STATEMENTS_SHOWN_MAX = 200
REVIEWED_AT_A_TIME = 500

assert IDENTITY_POLICY_CHARACTERS_MAX <= KEY_POLICIES_CHARACTERS_MAX
