"""JSON bodies of the REST interface: read strictly, so that what is stored is what everybody reads in the body."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from frontend.strict_json import TooManyValues, check_values

_DIGITS_SHOWN_MAX = 20
_NAME_SHOWN_MAX = 80


class StrictJSONParser(JSONParser):
    """JSON in UTF-8 whose objects name each member once, and whose texts are whole characters. NaN and Infinity are no
    JSON, and numbers that would be read as infinite are refused. So are bodies of more values than a front end takes in
    one for itself: each that is wrong would be told."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Raises ParseError, which is answered as a problem."""
        try:
            text = stream.read()
            check_values(text)
            # Of bytes, `json` reads other encodings, too, and halves of surrogate pairs.
            found = json.loads(
                text.decode(), object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_finite
            )
            if b"\\u" in text:
                # Half of a surrogate pair can be written as an escape, and in no answer.
                json.dumps(found, ensure_ascii=False).encode()
            return found
        except TooManyValues as error:
            raise ParseError(f"The body is not taken: {error}.") from None
        except UnicodeEncodeError:
            raise ParseError("The body holds half of a surrogate pair.") from None
        except RecursionError:
            raise ParseError("The body is nested too deeply.") from None
        except ValueError as error:  # also bytes that are no UTF-8, and numbers of too many digits
            raise ParseError(f"The body is not valid JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError(f"an object names the member {_repeated(pairs)[:_NAME_SHOWN_MAX]!a} twice")
    return members


def _repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("every member is named once")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:_DIGITS_SHOWN_MAX]} is too large")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")
