"""Who generates what: prompts drawn by a keyed hash, so that nobody chooses their own and anybody can check.

With N nodes (sorted by name, ranks k = 0..N-1), P prompts a round, G completions a prompt, n training prompts:

    draw(key, m) = the first m different values of  H(key, i) mod n,  i = 0, 1, 2, ...      H = BLAKE2b, 128 bits

    vertical     node k takes  draw((seed, name, round), P_k)  with G completions of each,
                 P_k    = P // N + [ (k - round) mod N < P mod N ]
    gaps         everybody takes  draw((seed, round), P)  with G completions of each
    horizontal   everybody takes  draw((seed, round), P),  and of the j-th prompt's completions node k makes
                 G_k(j) = G // N + [ (k - round - j) mod N < G mod N ]         (a share of 0 is left out)

The rests rotate, so that over N rounds everybody generates the same amount. There is no state: any plan of any round
can be computed at any time on any machine. In an open swarm nobody knows N: everybody, whatever the name, takes
draw((seed, name, round), P), where P is what the run gives to one node.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import Literal

from motet.errors import UsageError

Collaboration = Literal["vertical", "horizontal", "gaps"]
_KEPT_ROUNDS = 8
_MOST_NAMES = 256


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt that a node generates completions for in a round."""

    prompt_id: str
    num_completions: int


class Assignment:
    """The prompts of every node in every round; see the module's docstring for the formula.

    Args:
        seed: seed of the run.
        peers: names of all nodes, this one included, in any order.
        prompts_per_round: P, prompts of one round over all nodes.
        group_size: G, completions of each prompt.
        num_train_prompts: n, prompts "train/0" to "train/<n-1>".
        collaboration: "vertical", "horizontal" or "gaps".
        is_open: nodes of any other name may take part, each with `prompts_per_round` prompts of its own; vertical only.

    Raises:
        UsageError: more prompts a round than the task has, or two nodes of one name.

    >>> assignment = Assignment(7, ["ann", "bob"], 3, 4, num_train_prompts=100)
    >>> [len(assignment.plan(name, 0)) for name in ("ann", "bob")]
    [2, 1]
    >>> ask = assignment.plan("bob", 0)[0]
    >>> assignment.expected("bob", 0, ask.prompt_id), assignment.expected("bob", 0, "test/0")
    (4, 0)
    """

    def __init__(
        self,
        seed: int,
        peers: Sequence[str],
        prompts_per_round: int,
        group_size: int,
        num_train_prompts: int,
        collaboration: Collaboration = "vertical",
        *,
        is_open: bool = False,
    ) -> None:
        if prompts_per_round > num_train_prompts:
            raise UsageError(
                f"rollout.prompts_per_round: {prompts_per_round} is more than the task's {num_train_prompts} training "
                f"prompts; set it to {num_train_prompts} or less",
                code="E-SWARM-02",
            )
        self._rank = {name: rank for rank, name in enumerate(sorted(peers))}
        if len(self._rank) != len(peers):
            raise UsageError("node.name: two nodes have the same name; names must differ", code="E-SWARM-01")
        self._seed = seed
        self._prompts_per_round = prompts_per_round
        self._group_size = group_size
        self._num_train_prompts = num_train_prompts
        self._collaboration = collaboration
        self._is_open = is_open
        self._lock = threading.Lock()
        self._shares: dict[tuple[str, int], MappingProxyType[str, int]] = {}

    def plan(self, peer: str, round: int) -> tuple[Ask, ...]:
        """What a node generates in a round, in the order of drawing.

        Raises:
            KeyError: no node of this name.
        """
        return tuple(Ask(prompt_id, share) for prompt_id, share in self._share(peer, round).items())

    def beyond(self, peer: str, round: int, num_prompts: int) -> tuple[Ask, ...]:
        """So many prompts with whole groups on top of what a node generates in a round: the next of its drawing.

        Raises:
            ValueError: unless collaboration is vertical: elsewhere nobody draws prompts of their own.
        """
        if num_prompts == 0:
            return ()
        if self._collaboration != "vertical":
            raise ValueError("there are prompts of one's own under vertical collaboration only")
        planned = len(self._share(peer, round))
        most = min(planned + num_prompts, self._num_train_prompts)
        drawn = self._draw(f"vertical\n{self._seed}\n{peer}\n{round}", most)[planned:]
        return tuple(Ask(prompt_id, self._group_size) for prompt_id in drawn)

    def expected(self, peer: str, round: int, prompt_id: str) -> int:
        """How many completions of a prompt the peer was given in the round; 0 if none, or if it is no member."""
        return self._share(peer, round).get(prompt_id, 0) if self._is_open or peer in self._rank else 0

    def _share(self, peer: str, round: int) -> MappingProxyType[str, int]:
        key = (peer, round)
        with self._lock:
            known = self._shares.get(key)
        if known is not None:
            return known
        compute = {"vertical": self._vertical, "horizontal": self._horizontal, "gaps": self._same}
        share = MappingProxyType(compute[self._collaboration](peer, round))
        with self._lock:
            self._shares[key] = share
            while len(self._shares) > _KEPT_ROUNDS * (_MOST_NAMES if self._is_open else len(self._rank)):
                del self._shares[next(iter(self._shares))]
        return share

    def _vertical(self, peer: str, round: int) -> dict[str, int]:
        num_prompts = self._prompts_per_round
        if not self._is_open:
            num_prompts = self._part(num_prompts, self._rank[peer] - round)
        return dict.fromkeys(self._draw(f"vertical\n{self._seed}\n{peer}\n{round}", num_prompts), self._group_size)

    def _same(self, peer: str, round: int) -> dict[str, int]:
        del peer
        return dict.fromkeys(self._common(round), self._group_size)

    def _common(self, round: int) -> list[str]:
        return self._draw(f"horizontal\n{self._seed}\n{round}", self._prompts_per_round)

    def _horizontal(self, peer: str, round: int) -> dict[str, int]:
        prompts = self._common(round)
        turn = self._rank[peer] - round
        shares = {prompt_id: self._part(self._group_size, turn - j) for j, prompt_id in enumerate(prompts)}
        return {prompt_id: share for prompt_id, share in shares.items() if share > 0}

    def _part(self, total: int, turn: int) -> int:
        each, rest = divmod(total, len(self._rank))
        return each + (turn % len(self._rank) < rest)

    def _draw(self, key: str, count: int) -> list[str]:
        drawn: dict[int, None] = {}
        i = 0
        while len(drawn) < count:
            digest = blake2b(f"{key}\n{i}".encode(), digest_size=16, person=b"motet.assign").digest()
            drawn[int.from_bytes(digest, "big") % self._num_train_prompts] = None
            i += 1
        return [f"train/{index}" for index in drawn]
