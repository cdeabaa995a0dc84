"""Patterns of resources: `*`, or an ARN with wildcards and variables, compiled. Pure.

An ARN is cut at its first five colons. Wildcards stand in each part but the service, and match within their part only;
variables stand in the last part. In an identity policy parts that are left out are `*`; in a queue policy only where
the pattern has a wildcard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frontend.authz.condition_operators import resolve_for
from frontend.authz.policy_document import PolicyKind, Text
from frontend.authz.policy_error import PolicyError
from frontend.authz.request_context import ARN_PARTS, RequestContext, split_arn
from frontend.authz.template import Token, Variable, Wild, parse_template, variables_in
from frontend.authz.wildcard import compile_pattern, kept_pattern

ResourceCheck = Callable[[RequestContext], bool]
_SERVICE_PART = 2


def every_resource(request: RequestContext) -> bool:
    return True


def compile_resources(texts: Sequence[Text], kind: PolicyKind, variables: bool) -> ResourceCheck:
    """Whether the resource of a request is one of these. Raises PolicyError."""
    exact: set[str] = set()
    checks: list[ResourceCheck] = []
    everything = False
    for path, text in texts:
        if text == Wild.RUN.value:
            everything = True
            continue
        parts = parse_resource(path, text, kind, variables)
        if any(not isinstance(token, str) for part in parts for token in part):
            checks.append(_compile_parts(parts))
        else:
            exact.add(":".join("".join(map(str, part)) for part in parts))
    if everything:
        return every_resource
    return _any_of(frozenset(exact), checks)


def parse_resource(path: str, text: str, kind: PolicyKind, variables: bool) -> list[tuple[Token, ...]]:
    """The six parts. Raises PolicyError."""
    pieces = text.split(":", ARN_PARTS - 1)
    if pieces[0] != "arn" or len(pieces) == 1:
        raise PolicyError(path, "must be * or an ARN, arn:partition:service:region:account:resource")
    missing = ARN_PARTS - len(pieces)
    if missing and kind is PolicyKind.RESOURCE and not any(wild.value in text for wild in Wild):
        raise PolicyError(path, "is no whole ARN: it has fewer than six parts, and no wildcard")
    for piece in pieces[: ARN_PARTS - 1]:
        if variables and "${" in piece:
            raise PolicyError(path, "a variable stands only behind the fifth colon of an ARN")
    if len(pieces) > _SERVICE_PART and any(wild.value in pieces[_SERVICE_PART] for wild in Wild):
        raise PolicyError(path, "the service of an ARN takes no wildcard")
    pieces += [Wild.RUN.value] * missing
    before = [parse_template(path, piece, wildcards=True, variables=False) for piece in pieces[:-1]]
    return [*before, parse_template(path, pieces[-1], wildcards=True, variables=variables)]


def variables_of(text: Text, kind: PolicyKind) -> list[Variable]:
    if text.value == Wild.RUN.value:
        return []
    return variables_in(parse_resource(*text, kind, variables=True)[-1])


def _any_of(exact: frozenset[str], checks: Sequence[ResourceCheck]) -> ResourceCheck:
    if not checks:
        return lambda request: request.resource_arn in exact
    if len(checks) == 1 and not exact:
        return checks[0]

    def matches(request: RequestContext) -> bool:
        return request.resource_arn in exact or any(check(request) for check in checks)

    return matches


def _compile_parts(parts: Sequence[tuple[Token, ...]]) -> ResourceCheck:
    *before, last = parts
    if variables_in(last):
        return _with_variables(before, last)
    name_matches = compile_pattern(last)
    if all(isinstance(token, str) for part in before for token in part):
        # Texts alone: what begins with them is cut at the same five colons.
        prefix = "".join(f"{''.join(map(str, part))}:" for part in before)
        length = len(prefix)

        def begins_and_matches(request: RequestContext) -> bool:
            arn = request.resource_arn
            return arn.startswith(prefix) and name_matches(arn[length:])

        return begins_and_matches
    before_match = _compile_before(before)

    def matches(request: RequestContext) -> bool:
        given = split_arn(request.resource_arn)
        return name_matches(given[-1]) and before_match(given)

    return matches


def _with_variables(before: Sequence[tuple[Token, ...]], last: Sequence[Token]) -> ResourceCheck:
    before_match = _compile_before(before)

    def matches(request: RequestContext) -> bool:
        given = split_arn(request.resource_arn)
        if not before_match(given):
            return False
        resolved = resolve_for(last, request)
        return resolved is not None and kept_pattern(resolved)(given[-1])

    return matches


def _compile_before(parts: Sequence[tuple[Token, ...]]) -> Callable[[Sequence[str]], bool]:
    """A part that is `*` alone matches whatever stands there."""
    matchers = [(at, compile_pattern(part)) for at, part in enumerate(parts) if part != (Wild.RUN,)]
    return lambda given: all(matches(given[at]) for at, matches in matchers)
