"""MD5 of message attributes, as SDKs compute and compare it.

    for each attribute, by name:  length, name - length, data type - 1 (string, number) or 2 (binary) - length, value

Lengths are 4 bytes, big-endian; texts are UTF-8.
"""

from __future__ import annotations

import hashlib
from struct import pack

from frontend.crypto.envelope import Attributes


def attributes_md5(attributes: Attributes) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for name, (data_type, value) in sorted(attributes.items()):
        raw_name, raw_type = name.encode(), data_type.encode()
        kind = b"\x02" if data_type.startswith("Binary") else b"\x01"
        digest.update(pack(">I", len(raw_name)) + raw_name + pack(">I", len(raw_type)) + raw_type + kind)
        digest.update(pack(">I", len(value)) + value)
    return digest.hexdigest()
