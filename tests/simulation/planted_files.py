"""Planted bugs of what is read at a start beside the log: manifests, the mark, checkpoints (`planted.py`)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import google_crc32c

from storage_nodes.log import manifest
from tests.storage_nodes.log.damage_fuzz import planted as log_bugs


class _Unchecked(int):
    """A checksum that differs from none."""

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def reads_unchecked_manifests() -> AbstractContextManager[Any]:
    """B67: a manifest's checksum is not looked at."""

    def value(data: bytes) -> int:
        return _Unchecked(google_crc32c.value(data))

    return mock.patch.object(manifest, "google_crc32c", SimpleNamespace(value=value, extend=google_crc32c.extend))


def doubts_no_lost_mark() -> AbstractContextManager[Any]:
    """B68: a mark that is lost is replaced, and no replica is suspect."""
    return log_bugs.doubts_no_mark()


def reads_unchecked_checkpoints() -> AbstractContextManager[Any]:
    """B69: a checkpoint's checksum is not looked at."""
    return log_bugs.reads_unchecked_checkpoints()
