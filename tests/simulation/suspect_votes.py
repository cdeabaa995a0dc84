"""R12: the votes of replicas that may have lost something do not count, but where all voters gave theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage_nodes.protocol.peer_messages import RaftMessage, VoteReply, VoteRequest

if TYPE_CHECKING:
    from tests.simulation.log_oracle import LogOracle


class SuspectVotes:
    """Of one world: votes that left while the disk of their voter said that it is suspect."""

    def __init__(self) -> None:
        self._given: set[tuple[int, int, int]] = set()  # (partition, epoch, node)

    def leaves(self, node_id: int, message: RaftMessage, is_suspect: bool) -> None:
        is_vote = (isinstance(message, VoteReply) and message.granted) or isinstance(message, VoteRequest)
        if is_suspect and is_vote and not message.pre_vote:  # type: ignore[union-attr]
            self._given.add((message.partition, message.epoch, node_id))

    def check(self, oracle: LogOracle, partition: int, epoch: int, votes: set[int], voters: tuple[int, ...]) -> None:
        """The winner has a majority of votes that count."""
        counted = {voter for voter in votes.intersection(voters) if (partition, epoch, voter) not in self._given}
        if len(counted) <= len(voters) // 2 and not votes.issuperset(voters):
            text = (
                f"partition {partition}, epoch {epoch}: of the votes of {votes} those of {counted} count, of {voters}"
            )
            oracle.fail("R12 suspect votes do not count", text)
