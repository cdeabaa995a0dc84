"""Limits of policy documents. docs/policies.md says where each comes from.

Surface: other planes may import this module.
"""

from __future__ import annotations

# Text of a document before anything of it is read.
POLICY_TEXT_BYTES_MAX = 32_768
# Objects and lists within each other. A list of values of a condition is the sixth.
POLICY_DEPTH_MAX = 8

# A queue policy, as SQS limits it: bytes as sent, the rest over the whole document but for actions.
QUEUE_POLICY_BYTES_MAX = 8_192
QUEUE_POLICY_STATEMENTS_MAX = 20
QUEUE_POLICY_PRINCIPALS_MAX = 50
QUEUE_POLICY_CONDITIONS_MAX = 10
QUEUE_POLICY_ACTIONS_PER_STATEMENT_MAX = 7

# An identity policy: characters without white space, as a managed policy has them.
IDENTITY_POLICY_CHARACTERS_MAX = 6_144
IDENTITY_POLICY_STATEMENTS_MAX = 100

# Values and resources with a `?` between two `*`, of a whole document, and of all policies of a key together: such a
# pattern takes a step of the interpreter for every character that it is compared with, 0.3 us each. With the next limit
# that is 3 ms for the worst of policies.
FLOATING_PATTERNS_MAX = 20
# What is compared of texts that a caller makes up: user agent and referer.
CALLER_TEXT_CHARACTERS_MAX = 512
# Wildcards in conditions on keys of several values (aws:TagKeys), of a whole document, and of all policies of a key
# together: each is looked for in each of 50 tag keys of 128 characters, 25 to 50 us for all of them. What costs more
# counts as more, so that the worst document takes 4 ms.
SEVERAL_VALUES_WILDCARDS_MAX = 100
WILDCARDS_OF_A_VARIABLE = 10
WILDCARDS_OF_A_FLOATING_PATTERN = 40
# Of a value that is read before it is compared: a number, an address, an ARN.
WILDCARDS_OF_A_READ_VALUE = 5

SID_CHARACTERS_MAX = 128
ID_CHARACTERS_MAX = 512
# Digits of a number, before and after its point together.
NUMBER_DIGITS_MAX = 40
# Parsed request values that are kept: addresses and times come again and again.
PARSED_VALUES_KEPT_MAX = 1_024
# Patterns with the values of a request in place of variables.
PATTERNS_KEPT_MAX = 1_024

assert QUEUE_POLICY_BYTES_MAX <= POLICY_TEXT_BYTES_MAX
assert IDENTITY_POLICY_CHARACTERS_MAX <= POLICY_TEXT_BYTES_MAX
