"""When a node samples its own groups: in the round that learns from them, or one round ahead of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import torch

from motet.models import Policy
from motet.node.sampling import Sampler
from motet.records import Group
from motet.swarm import Assignment


@dataclass(frozen=True, slots=True)
class Stock:
    """Groups that were sampled before their round: what a checkpoint between two rounds must hold.

    Attributes:
        round: the round that they are for.
        groups: this node's groups of that round.
    """

    round: int
    groups: Sequence[Group]


class Production(Protocol):
    """Where a node's own groups come from."""

    def groups(self, round: int) -> list[Group]:
        """This node's groups of a round; rounds are asked for in order, each once."""
        ...

    def more(self, round: int, num_groups: int) -> list[Group]:
        """So many groups of this round on top of `groups`: for this node alone, from the weights of this moment.

        Raises:
            ValueError: where groups are sampled ahead of their round.
        """
        ...

    def sampling_s(self, since: float, until: float) -> float:
        """Seconds between two times of `perf_counter` in which groups were sampled beside the round."""
        ...

    def stock(self) -> Stock | None:
        """What has been sampled ahead; waits until it is complete."""
        ...

    def restore(self, stock: Stock | None) -> None:
        """Continue with what `stock` returned before an interruption."""
        ...

    def close(self) -> None:
        """Sample no more."""
        ...


class OnTime:
    """Samples when asked, from the weights of that moment: nothing is ever a step old.

    Args:
        sampler: makes the groups.
        assignment: says which.
        policy_step: optimiser steps that the weights have seen.
    """

    def __init__(self, sampler: Sampler, *, assignment: Assignment, policy_step: Callable[[], int]) -> None:
        self.sampler = sampler
        self._assignment = assignment
        self._policy_step = policy_step

    def groups(self, round: int) -> list[Group]:
        """See `Production.groups`."""
        asks = self._assignment.plan(self.sampler.name, round)
        return self.sampler.sample(asks, round=round, policy_step=self._policy_step())

    def more(self, round: int, num_groups: int) -> list[Group]:
        """See `Production.more`."""
        asks = self._assignment.beyond(self.sampler.name, round, num_groups)
        return self.sampler.sample(asks, round=round, policy_step=self._policy_step(), stream="sample more")

    def sampling_s(self, since: float, until: float) -> float:
        """None: sampling is a part of the round."""
        del since, until
        return 0.0

    def stock(self) -> Stock | None:
        """None."""
        return None

    def restore(self, stock: Stock | None) -> None:
        """There is nothing to take over. Raises ValueError if there is."""
        if stock is not None:
            raise ValueError("groups were sampled ahead, which this run does not do")

    def close(self) -> None:
        """There is nothing to end."""


class Nothing:
    """Samples nothing: the node learns from what others sampled."""

    def groups(self, round: int) -> list[Group]:
        """None."""
        del round
        return []

    def more(self, round: int, num_groups: int) -> list[Group]:
        """None. Raises ValueError if there are to be any."""
        del round
        if num_groups:
            raise ValueError("more groups are wanted, and this run samples nothing")
        return []

    def sampling_s(self, since: float, until: float) -> float:
        """None."""
        del since, until
        return 0.0

    def stock(self) -> Stock | None:
        """None."""
        return None

    def restore(self, stock: Stock | None) -> None:
        """There is nothing to take over. Raises ValueError if there is."""
        if stock is not None:
            raise ValueError("groups were sampled ahead, and this run samples nothing")

    def close(self) -> None:
        """There is nothing to end."""


class Ahead:
    """Samples the groups of the next round while the node is busy with this one.

    A thread samples from a copy of the policy, which gets the weights as they are when a round begins: those of round
    r + 1 are from before the step of round r, one step older than if they were sampled on time. `SamplerInfo` says so,
    and their importance weights correct for it. Threads decide nothing: which weights sample which round is fixed.

    Args:
        sampler: makes the groups, from `copy`.
        assignment: says which.
        policy_step: optimiser steps that the policy's weights have seen.
        policy: the policy that is trained.
        copy: the policy that `sampler` samples from; nothing else may use it.
        num_rounds: rounds of the run: nothing is sampled for those behind it.
    """

    def __init__(
        self,
        sampler: Sampler,
        *,
        assignment: Assignment,
        policy_step: Callable[[], int],
        policy: Policy,
        copy: Policy,
        num_rounds: int,
    ) -> None:
        self.sampler = sampler
        self._assignment = assignment
        self._policy_step = policy_step
        self._weights = list(policy.trainable().values())
        self._copies = list(copy.trainable().values())
        self._num_rounds = num_rounds
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"sampling {sampler.name}")
        self._next: tuple[int, Future[list[Group]]] | None = None
        self._began = self._ended = 0.0

    def groups(self, round: int) -> list[Group]:
        """See `Production.groups`. The first round is sampled on time, having none before it."""
        if self._next is None or self._next[0] != round:
            self._begin(round)
        groups = self._finished()
        self._next = None
        if round + 1 < self._num_rounds:
            self._begin(round + 1)
        return groups

    def more(self, round: int, num_groups: int) -> list[Group]:
        """See `Production.more`."""
        if num_groups:
            raise ValueError(f"round {round}: {num_groups} groups more, from weights that are sampled from already")
        return []

    def sampling_s(self, since: float, until: float) -> float:
        """See `Production.sampling_s`."""
        ended = until if self._next is not None and not self._next[1].done() else self._ended
        return max(0.0, min(until, ended) - max(since, self._began))

    def stock(self) -> Stock | None:
        """See `Production.stock`. Raises what sampling raised."""
        return None if self._next is None else Stock(self._next[0], self._finished())

    def restore(self, stock: Stock | None) -> None:
        """See `Production.restore`."""
        self._next = None
        if stock is not None:
            future: Future[list[Group]] = Future()
            future.set_result(list(stock.groups))
            self._next = (stock.round, future)

    def close(self) -> None:
        """Begin nothing more; a round's sampling that is under way ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    @torch.no_grad()
    def _begin(self, round: int) -> None:
        for copy, weight in zip(self._copies, self._weights, strict=True):
            copy.copy_(weight)
        self._began = perf_counter()
        self._next = (round, self._thread.submit(self._sample, round, self._policy_step()))

    def _sample(self, round: int, policy_step: int) -> list[Group]:
        try:
            asks = self._assignment.plan(self.sampler.name, round)
            return self.sampler.sample(asks, round=round, policy_step=policy_step)
        finally:
            self._ended = perf_counter()

    def _finished(self) -> list[Group]:
        assert self._next is not None
        return self._next[1].result()
