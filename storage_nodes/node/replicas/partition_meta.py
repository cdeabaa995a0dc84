"""What a node keeps with each local partition, as the tag of its log: JSON, in which defaults are left out."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from storage_nodes.protocol.configuration import Configuration
from storage_nodes.protocol.messages import QueueConfig

METAS_SHARED_MAX = 1_024

# What is left out of the log is this: a default never changes.
_DEFAULT_CONFIG = QueueConfig()


class PartitionMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a node keeps with each local partition, so that it can serve it without asking anyone.

    `replicas` and `learner` are the group as it was when this replica was made: who belongs to it now, the log says.
    """

    tag: str
    replicas: tuple[int, ...]
    config: QueueConfig = _DEFAULT_CONFIG
    # Made to be fed, and never a voter before; it becomes one, if at all, by an entry of the log. A node that is not
    # among `replicas` and no learner in this sense lost its log, and may have been made a voter before.
    learner: bool = False
    # The move that brought it, or the last one before it was made (`node/membership/assigned_replicas.py`).
    move: int = 0

    def boot(self, node_id: int) -> Configuration:
        """The configuration until the log says otherwise."""
        if node_id in self.replicas and not self.learner:
            return _shared_boot(Configuration(self.replicas))
        voters = tuple(replica for replica in self.replicas if replica != node_id)
        return _shared_boot(Configuration(voters, (node_id,)))


@lru_cache(METAS_SHARED_MAX)
def _shared(replicas: tuple[int, ...], config: QueueConfig) -> tuple[tuple[int, ...], QueueConfig]:
    return replicas, config


@lru_cache(METAS_SHARED_MAX)
def _shared_boot(boot: Configuration) -> Configuration:
    return boot


def shared_meta(text: str) -> PartitionMeta:
    """As it stands in the log; thousands of partitions share the few sets of replicas and configurations there are."""
    meta = msgspec.json.decode(text, type=PartitionMeta)
    return PartitionMeta(meta.tag, *_shared(meta.replicas, meta.config), meta.learner, meta.move)


def meta_text(meta: PartitionMeta) -> str:
    """As the log takes it. It stays in memory as long as the partition, so what is as by default is left out."""
    config = _DEFAULT_CONFIG if meta.config == _DEFAULT_CONFIG else meta.config
    return msgspec.json.encode(msgspec.structs.replace(meta, config=config)).decode()
