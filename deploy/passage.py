"""The way to a directory for one user more: the right to pass through its parents, for that user alone.

An entry of the access control list (acl(5)) says so where the file system has such lists. Where it has not, the parent
is opened for passage, not for reading, to all users of the machine.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

from deploy import output

_ATTRIBUTE = "system.posix_acl_access"
_VERSION = 2
_HEAD = struct.Struct("<I")
_ENTRY = struct.Struct("<HHI")
# Tags of entries, in the order in which a list has them.
_OWNER, _USER, _GROUP, _NAMED_GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_NO_ID = 0xFFFF_FFFF
_PASS = 0o1

Entry = tuple[int, int, int]  # tag, rights, id


def grant_passage(path: Path, uid: int) -> None:
    """Let the user walk to `path`. Says so for each parent that it changes."""
    for parent in path.resolve().parents:
        status = parent.stat()
        if status.st_uid == uid or status.st_mode & _PASS:
            continue
        entries = read_list(parent, status.st_mode)
        if may_pass(entries, uid):
            continue
        try:
            os.setxattr(parent, _ATTRIBUTE, pack_list(with_passage(entries, uid)))
            output.say(f"  {parent}: passage granted to user {uid}, so that the embedded servers need not run as root")
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS):
                raise
            output.say(f"  {parent}: passage granted (o+x), so that the embedded servers need not run as root")
            parent.chmod((status.st_mode & 0o7777) | _PASS)


def may_pass(entries: list[Entry], uid: int) -> bool:
    """A later change of the mode narrows the mask, and leaves the user's entry as it is."""
    mask = next((rights for tag, rights, _ in entries if tag == _MASK), 0)
    return any(rights & mask & _PASS for tag, rights, owner in entries if (tag, owner) == (_USER, uid))


def read_list(path: Path, mode: int) -> list[Entry]:
    """The list of `path`; one that says what `mode` says where it has none."""
    try:
        data = os.getxattr(path, _ATTRIBUTE)
    except OSError:
        owner, group, other = mode >> 6 & 7, mode >> 3 & 7, mode & 7
        return [(_OWNER, owner, _NO_ID), (_GROUP, group, _NO_ID), (_OTHER, other, _NO_ID)]
    return list(_ENTRY.iter_unpack(data[_HEAD.size :]))


def with_passage(entries: list[Entry], uid: int) -> list[Entry]:
    """The same list, by which the user may pass. The mask bounds what named users and groups may: it must allow that,
    and nothing that it did not allow before."""
    own = next((rights for tag, rights, owner in entries if (tag, owner) == (_USER, uid)), 0)
    kept = [entry for entry in entries if entry[0] != _MASK and (entry[0], entry[2]) != (_USER, uid)]
    mask = next((rights for tag, rights, _ in entries if tag == _MASK), None)
    if mask is None:
        mask = next(rights for tag, rights, _ in entries if tag == _GROUP)
    granted = [*kept, (_USER, own & mask | _PASS, uid), (_MASK, mask | _PASS, _NO_ID)]
    return sorted(bounded(granted, mask), key=lambda entry: (entry[0], entry[2]))


def bounded(entries: list[Entry], mask: int) -> list[Entry]:
    """What the wider mask would allow to others is taken from them."""
    if mask & _PASS:
        return entries
    named = [entry for entry in entries if entry[0] in (_GROUP, _NAMED_GROUP)]
    return [(tag, rights & ~_PASS, owner) if (tag, rights, owner) in named else (tag, rights, owner)
            for tag, rights, owner in entries]  # fmt: skip


def pack_list(entries: list[Entry]) -> bytes:
    return _HEAD.pack(_VERSION) + b"".join(_ENTRY.pack(*entry) for entry in entries)
