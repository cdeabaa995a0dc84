"""What a part of a path may be."""

from __future__ import annotations

from django.urls import register_converter
from django.urls.converters import StringConverter


class NameConverter(StringConverter):
    """A name in a path. PostgreSQL takes no NUL in a text: a path with one is not found."""

    def to_python(self, value: str) -> str:
        if "\0" in value:
            raise ValueError("a name holds no NUL")  # Django's word for "does not match"
        return value


register_converter(NameConverter, "name")
