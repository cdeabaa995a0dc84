"""The condition operators: how a value of a request is compared with the values of a policy. Pure.

    [ForAllValues: | ForAnyValue:] operator [IfExists]       names ignore case

A comparison answers whether one value of the request fits one of the policy's values. A negated operator turns that
round: none may fit. So a value that cannot be read, or a variable without a value, makes the plain operator false and
the negated one true. A value of the *policy* that cannot be read is refused before it gets here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from frontend.authz import condition_values as values
from frontend.authz.context_keys import find_key
from frontend.authz.policy_error import PolicyError
from frontend.authz.request_context import ARN_PARTS, RequestContext
from frontend.authz.template import Token, parse_template, resolve, split_at_colons, variables_in
from frontend.authz.wildcard import Matcher, compile_pattern, kept_pattern

# Whether a value of the request fits one of the policy's.
Comparison = Callable[[str, RequestContext], bool]
# Makes the comparison of values that stand at a path. Raises PolicyError.
Family = Callable[[Sequence[tuple[str, str]], bool], Comparison]


class SetOperator(Enum):
    NONE = auto()
    FOR_ALL_VALUES = auto()
    FOR_ANY_VALUE = auto()


class ConditionOperator(NamedTuple):
    """`family` groups operators that are for the same types of keys."""

    name: str
    family: str
    compare: Family
    negated: bool = False


class OperatorUse(NamedTuple):
    operator: ConditionOperator
    set_operator: SetOperator
    if_exists: bool


def parse_operator(path: str, text: str) -> OperatorUse:
    """Raises PolicyError."""
    set_name, colon, name = text.rpartition(":")
    set_operator = _SET_OPERATORS.get(set_name.lower())
    folded = name.lower()
    if_exists = folded.endswith(_IF_EXISTS)
    found = _OPERATORS.get(folded.removesuffix(_IF_EXISTS))
    if set_operator is None or (colon and not set_name) or found is None:
        raise PolicyError(path, f"no such operator; there are {', '.join(one.name for one in OPERATORS)}")
    if found is NULL and (if_exists or set_operator is not SetOperator.NONE):
        raise PolicyError(path, "Null takes neither IfExists nor ForAllValues nor ForAnyValue")
    return OperatorUse(found, set_operator, if_exists)


# --- texts ---


def _string_family(*, wildcards: bool, fold: bool = False) -> Family:
    def compare(given: Sequence[tuple[str, str]], variables: bool) -> Comparison:
        plain: set[str] = set()
        patterns: list[Matcher] = []
        dynamic: list[tuple[Token, ...]] = []
        for path, text in given:
            tokens = parse_template(path, text, wildcards=wildcards, variables=variables)
            if variables_in(tokens):
                dynamic.append(tokens)
            elif all(isinstance(token, str) for token in tokens):
                literal = "".join(str(token) for token in tokens)
                plain.add(literal.casefold() if fold else literal)
            else:
                patterns.append(compile_pattern(tokens))
        return _texts(frozenset(plain), patterns, dynamic, fold)

    return compare


def _texts(
    plain: frozenset[str], patterns: Sequence[Matcher], dynamic: Sequence[tuple[Token, ...]], fold: bool
) -> Comparison:
    if not patterns and not dynamic and not fold:
        return lambda value, request: value in plain

    def fits(value: str, request: RequestContext) -> bool:
        compared = value.casefold() if fold else value
        if compared in plain or any(matches(value) for matches in patterns):
            return True
        for tokens in dynamic:
            resolved = resolve_for(tokens, request)
            if resolved is None:
                continue
            if fold:
                resolved = tuple(token.casefold() if isinstance(token, str) else token for token in resolved)
            if kept_pattern(resolved)(compared):
                return True
        return False

    return fits


def resolve_for(tokens: Sequence[Token], request: RequestContext) -> tuple[Token, ...] | None:
    """With the request's values in place of variables. Keys of several values have none for a variable."""

    def value_of(name: str) -> str | None:
        key = find_key(name)
        value = None if key is None else key.read(request)
        return value if isinstance(value, str) else None

    return resolve(tokens, value_of)


# --- ARNs ---


def _compare_arns(given: Sequence[tuple[str, str]], variables: bool) -> Comparison:
    static: list[Sequence[Matcher]] = []
    dynamic: list[tuple[Token, ...]] = []
    for path, text in given:
        tokens = parse_template(path, text, wildcards=True, variables=variables)
        if variables_in(tokens):
            dynamic.append(tokens)
        elif (matchers := _arn_matchers(tokens)) is None:
            raise PolicyError(path, "not an ARN: it has six parts, arn:partition:service:region:account:resource")
        else:
            static.append(matchers)

    def fits(value: str, request: RequestContext) -> bool:
        parts = value.split(":", ARN_PARTS - 1)
        if len(parts) != ARN_PARTS or parts[0] != "arn":
            return False
        if any(_parts_fit(matchers, parts) for matchers in static):
            return True
        for tokens in dynamic:
            resolved = resolve_for(tokens, request)
            matchers = None if resolved is None else _arn_matchers(resolved)
            if matchers is not None and _parts_fit(matchers, parts):
                return True
        return False

    return fits


def _arn_matchers(tokens: Sequence[Token]) -> Sequence[Matcher] | None:
    parts = split_at_colons(tokens, ARN_PARTS)
    return [kept_pattern(part) for part in parts] if len(parts) == ARN_PARTS else None


def _parts_fit(matchers: Sequence[Matcher], parts: Sequence[str]) -> bool:
    return all(matches(part) for matches, part in zip(matchers, parts, strict=True))


# --- what is read before it is compared ---


def _read_all(given: Sequence[tuple[str, str]], read: Callable[[str], Any], what: str) -> list[Any]:
    found = []
    for path, text in given:
        value = read(text)
        if value is None:
            raise PolicyError(path, f"{text[:100]!a} is not {what}")
        found.append(value)
    return found


def _read_family(read: Callable[[str], Any], what: str, compare: Callable[[Any, Any], bool]) -> Family:
    def family(given: Sequence[tuple[str, str]], variables: bool) -> Comparison:
        wanted = _read_all(given, read, what)

        def fits(text: str, request: RequestContext) -> bool:
            value = read(text)
            return value is not None and any(compare(value, one) for one in wanted)

        return fits

    return family


def _compare_addresses(given: Sequence[tuple[str, str]], variables: bool) -> Comparison:
    networks: list[values.Network] = _read_all(given, values.read_network, "an address or a CIDR range")

    def fits(text: str, request: RequestContext) -> bool:
        address = values.read_address(text)
        return address is not None and any(map(address.is_in, networks))

    return fits


def _compare_booleans(given: Sequence[tuple[str, str]], variables: bool) -> Comparison:
    wanted = frozenset("true" if value else "false" for value in _read_all(given, values.read_boolean, "true or false"))
    return lambda text, request: text in wanted or text.lower() in wanted


_NUMBER = "a number (digits, with or without a sign and a decimal point)"
_TIME = "a time (2026-11-22T10:00:00Z, a date, or seconds since 1970)"


def _ordered(family: str, read: Callable[[str], Any], what: str) -> list[ConditionOperator]:
    comparisons = {
        "Equals": operator.eq,
        "LessThan": operator.lt,
        "LessThanEquals": operator.le,
        "GreaterThan": operator.gt,
        "GreaterThanEquals": operator.ge,
    }
    made = [
        ConditionOperator(family + name, family, _read_family(read, what, compare))
        for name, compare in comparisons.items()
    ]
    return [*made, ConditionOperator(f"{family}NotEquals", family, made[0].compare, True)]


def _pair(name: str, negated_name: str, family: str, compare: Family) -> list[ConditionOperator]:
    return [ConditionOperator(name, family, compare), ConditionOperator(negated_name, family, compare, True)]


NULL = ConditionOperator("Null", "Null", _compare_booleans)
OPERATORS: tuple[ConditionOperator, ...] = (
    *_pair("StringEquals", "StringNotEquals", "String", _string_family(wildcards=False)),
    *_pair("StringEqualsIgnoreCase", "StringNotEqualsIgnoreCase", "String", _string_family(wildcards=False, fold=True)),
    *_pair("StringLike", "StringNotLike", "String", _string_family(wildcards=True)),
    *_ordered("Numeric", values.read_number, _NUMBER),
    *_ordered("Date", values.read_time_ns, _TIME),
    ConditionOperator("Bool", "Bool", _compare_booleans),
    ConditionOperator("BinaryEquals", "Binary", _read_family(values.read_bytes, "base64", operator.eq)),
    *_pair("IpAddress", "NotIpAddress", "Ip", _compare_addresses),
    *_pair("ArnEquals", "ArnNotEquals", "Arn", _compare_arns),
    *_pair("ArnLike", "ArnNotLike", "Arn", _compare_arns),
    NULL,
)
_OPERATORS: Mapping[str, ConditionOperator] = {one.name.lower(): one for one in OPERATORS}
_SET_OPERATORS: Mapping[str, SetOperator] = {
    "": SetOperator.NONE,
    "forallvalues": SetOperator.FOR_ALL_VALUES,
    "foranyvalue": SetOperator.FOR_ANY_VALUE,
}
_IF_EXISTS = "ifexists"
