"""The configuration of one partition's Raft group: who votes, and who is only fed.

A configuration is logged as a control record of type CONTROL_CONFIGURATION, alone in a batch that says so in its
attributes, and it is in force at a replica from the moment its entry stands in that replica's log, committed or not
(`machines/raft/membership.py`). It is on disk and on the wire as a msgpack array with the version first:

    [1, [voter, ...], [learner, ...]]
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

VERSION = 1


class ConfigurationError(ValueError):
    """Bytes that are no configuration, or one of a version that this program does not know."""


class Configuration(NamedTuple):
    """Node ids. A voter counts for elections and commits; a learner is fed and never counted."""

    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()

    @property
    def members(self) -> tuple[int, ...]:
        return self.voters + self.learners


class ConfigurationEntry(NamedTuple):
    """A configuration and where its entry ends in the log."""

    end_offset: int
    configuration: Configuration


def encode_configuration(configuration: Configuration) -> bytes:
    return msgspec.msgpack.encode((VERSION, configuration.voters, configuration.learners))


def decode_configuration(data: bytes) -> Configuration:
    """Raises ConfigurationError."""
    try:
        version, *rest = msgspec.msgpack.decode(data)
        if version != VERSION:
            raise ConfigurationError(f"configuration of version {version}, this program knows {VERSION}")
        voters, learners = msgspec.convert(rest, tuple[tuple[int, ...], tuple[int, ...]])
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"not a configuration: {error}") from error
    configuration = Configuration(voters, learners)
    if not voters or len(set(configuration.members)) != len(configuration.members) or min(configuration.members) < 1:
        raise ConfigurationError(f"a configuration names its members once each, and a voter at least: {configuration}")
    return configuration
