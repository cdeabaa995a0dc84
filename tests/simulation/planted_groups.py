"""Planted bugs of consumer groups; what they are for says `planted.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from storage_nodes.machines.stream import consumers, coordinator
from storage_nodes.machines.stream.consumers import GRANTED, ConsumerGroup, Consumers
from storage_nodes.machines.stream.coordinator import GroupCoordinator
from storage_nodes.machines.stream.effects import StreamAnswer
from storage_nodes.protocol.errors import ErrorCode
from storage_nodes.protocol.messages import GroupCommitReply, GroupCommitRequest


@contextmanager
def takes_commits_of_zombies() -> Iterator[None]:
    """B22: a partition takes commits of members that own it no more; reads are still refused."""
    real = Consumers.right

    def right(self: Consumers, group: bytes, generation: int, epoch: int) -> ErrorCode:
        code = real(self, group, generation, epoch)
        return ErrorCode.OK if code is ErrorCode.FENCED else code

    def trusting(call: Callable[..., Any]) -> Callable[..., Any]:
        def commit(*arguments: Any) -> Any:
            with mock.patch.object(Consumers, "right", right):
                return call(*arguments)

        return commit

    folds, requests = consumers._FOLDS, coordinator._REQUESTS
    with (
        mock.patch.dict(folds, {consumers.COMMITTED: trusting(folds[consumers.COMMITTED])}),
        mock.patch.dict(requests, {GroupCommitRequest: trusting(requests[GroupCommitRequest])}),
    ):
        yield


@contextmanager
def grants_before_fenced() -> Iterator[None]:
    """B32: a partition is granted before its log refuses everybody else."""
    real = GroupCoordinator.ask_for_fences

    def ask_for_fences(self: GroupCoordinator) -> list[Any]:
        asked = real(self)
        for group, partition, generation, epoch in asked:
            self._stage(None, [GRANTED, group, partition, generation, epoch])
        return asked

    with mock.patch.object(GroupCoordinator, "ask_for_fences", ask_for_fences):
        yield


@contextmanager
def takes_without_asking() -> Iterator[None]:
    """B33: a rebalance takes a partition from its owner, which has not let go of it."""
    real = ConsumerGroup.rebalance

    def rebalance(self: ConsumerGroup, generation: int) -> None:
        real(self, generation)
        for share in self.shares.values():
            share.owner = share.owner if share.owner == share.target else 0

    with mock.patch.object(ConsumerGroup, "rebalance", rebalance):
        yield


@contextmanager
def answers_commits_before_commit() -> Iterator[None]:
    """B34: an offset counts as committed when it is staged."""
    real = GroupCoordinator._commit

    def commit(self: GroupCoordinator, token: Any, request: GroupCommitRequest, view: Any) -> list[Any]:
        staged = len(self._staged)
        effects = real(self, token, request, view)
        if len(self._staged) > staged:
            self._staged[-1] = (None, self._staged[-1][1])
            effects.append(StreamAnswer(token, GroupCommitReply(request.offset)))
        return effects

    with mock.patch.dict(coordinator._REQUESTS, {GroupCommitRequest: commit}):
        yield
