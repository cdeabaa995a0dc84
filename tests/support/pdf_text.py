"""The text of a PDF as Typst writes it, page by page: objects outside of object streams, fonts of two-byte codes with
`ToUnicode`. No reader of other PDFs."""

from __future__ import annotations

import re
import zlib

_OBJECT = re.compile(rb"(\d+) 0 obj\s(.*?)endobj", re.DOTALL)
_STREAM = re.compile(rb"stream\r?\n")
_FONT = re.compile(rb"/(f\d+) (\d+) 0 R")
# Parentheses within it stand for themselves where they are balanced: two levels are enough for a line.
_INNER = rb"(?:\\.|[^\\()]|\((?:\\.|[^\\()]|\((?:\\.|[^\\()])*\))*\))*"
_LITERAL = rb"\((" + _INNER + rb")\)"
# What is told about a piece (passed over), a font, a string, the end of the piece.
_SHOWN = re.compile(rb"<<.*?>>|/(f\d+) [\d.]+ Tf|" + _LITERAL + rb"|(\bET\b)", re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_NAMED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
_SECTION = re.compile(rb"beginbf(char|range)(.*?)endbf", re.DOTALL)
_CODE = re.compile(rb"<([0-9A-Fa-f]+)>")

# Where a long word may be cut.
ZERO_WIDTH = "\u200b"
Font = dict[int, str]


def pdf_pages(document: bytes) -> list[str]:
    """A line for each piece of text, in the order in which it is set; narrow spaces are as they are."""
    objects = {int(number): body for number, body in _OBJECT.findall(document)}
    pages = [body for body in objects.values() if b"/Type/Page/" in body]
    assert pages, "no page was found"
    return [_text_of(objects, page) for page in pages]


def _text_of(objects: dict[int, bytes], page: bytes) -> str:
    resources = objects[_reference(page, b"Resources")]
    fonts = {name: _font(objects, objects[int(number)]) for name, number in _FONT.findall(resources)}
    lines, line, font = [], "", Font()
    for name, literal, end in _SHOWN.findall(_data(objects[_reference(page, b"Contents")])):
        if name:
            font = fonts[name]
        elif end:
            lines.append(line.replace(ZERO_WIDTH, ""))
            line = ""
        elif literal:
            line += _decoded(literal, font)
    return "\n".join(lines)


def _reference(body: bytes, name: bytes) -> int:
    found = re.search(rb"/" + name + rb" (\d+) 0 R", body)
    assert found is not None, name
    return int(found[1])


def _data(body: bytes) -> bytes:
    found = _STREAM.search(body)
    assert found is not None
    data = body[found.end() :]
    return zlib.decompressobj().decompress(data) if b"/FlateDecode" in body[: found.start()] else data


def _font(objects: dict[int, bytes], body: bytes) -> Font:
    found: Font = {}
    for kind, section in _SECTION.findall(_data(objects[_reference(body, b"ToUnicode")])):
        codes = _CODE.findall(section)
        if kind == b"char":
            pairs = zip(codes[::2], codes[1::2], strict=True)
            found |= {int(code, 16): bytes.fromhex(text.decode()).decode("utf-16-be") for code, text in pairs}
            continue
        for first, last, text in zip(codes[::3], codes[1::3], codes[2::3], strict=True):
            found |= {
                code: chr(int(text, 16) + code - int(first, 16)) for code in range(int(first, 16), int(last, 16) + 1)
            }
    return found


def _decoded(literal: bytes, font: Font) -> str:
    raw = _ESCAPE.sub(_unescaped, literal)
    return "".join(font[int.from_bytes(raw[at : at + 2])] for at in range(0, len(raw), 2))


def _unescaped(found: re.Match[bytes]) -> bytes:
    escaped = found[1]
    return bytes([int(escaped, 8)]) if escaped[:1].isdigit() else _NAMED.get(escaped, escaped)
