"""The source of steps: from a plan's cursor to the global batch, with filtering and denominators settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from outlive.data.batch import Batch, make_batch
from outlive.data.growing import POLL_SECONDS
from outlive.data.plan import Cursor, Layout, Mixture, Plan, make_plan, rank_packs, refuse_empty
from outlive.learn.loss_rule import count
from outlive.run.config import Stop
from outlive.run.errors import WorkError
from outlive.run.files import hash_json


@dataclass(frozen=True)
class Step:
    """One optimizer step: this rank's micro-batches, and the denominators and counts of the global batch."""

    cursor: Cursor
    micro_batches: list[Batch]
    totals: dict[str, float]
    num_tokens: int
    num_targets: int


def nothing() -> None:
    """Do nothing."""


@dataclass
class PlanSource:
    """Steps of a plan of data, from `cursor` on. `micro_packs`: packs of one forward; rank `rank` of `world`.

    `tokens`: trained on so far. Both move on with every step; `begin` is where they stood first.
    """

    mixture: Mixture
    layout: Layout
    seed: int
    stop: Stop
    micro_packs: int
    cursor: Cursor = field(default_factory=Cursor)
    tokens: int = 0
    rank: int = 0
    world: int = 1
    on_growth: Callable[[], None] = nothing
    """Called when more samples have been prepared, before they are trained on."""
    _plan: Plan | None = None

    def __post_init__(self) -> None:
        self.begin = self.cursor, self.tokens
        self._extent = self.mixture.extent

    @cached_property
    def plan_key(self) -> str:
        """A hash of all that decides which packs a pass holds, in which order: cursors of equal keys mean the same."""
        stores = [[store.folder.name, weight] for store, weight in self.mixture.weighted()]
        more = [beyond] if (beyond := self.mixture.beyond_weights) else []
        return hash_json(
            [stores, self.layout.sequence_length, self.layout.packing, self.layout.window, self.seed, *more]
        )

    def plan(self, epoch: int) -> Plan:
        """The plan of an epoch, as far as its samples are prepared; the newest is kept."""
        if self._plan is None or self._plan.epoch != epoch:
            self._plan = refuse_empty(make_plan(self.mixture, self.layout, self.seed, epoch))
        return self._plan

    def wait(self, stop: Callable[[], bool] = lambda: False) -> float:
        """Wait until the samples of the next step are prepared, or it is to `stop`; how many seconds that took.

        Raises what the preparation has ended with, where it failed.
        """
        begun = time.monotonic()
        while not (self._next_is_there() or stop()):
            if not self.mixture.refresh():
                time.sleep(POLL_SECONDS)
        return time.monotonic() - begun

    def _next_is_there(self) -> bool:
        if self._extent != self.mixture.extent:  # what was counted and planned before is too little now
            self.mixture, self._plan, self._extent = replace(self.mixture), None, self.mixture.extent
            self.on_growth()
        if self.mixture.is_whole:
            return True
        epoch, pack, _ = self.cursor
        end = pack + self.layout.packs_per_step
        return epoch == 0 and self.plan(0).num_packs > end  # one more shows that the pass does not end there

    def num_steps(self) -> int:
        """The steps of the whole run, those before `begin` included: to the first of epochs, steps and tokens."""
        only_steps = self.stop.steps is not None and self.stop.epochs is None and self.stop.tokens is None
        if only_steps and self.stop.steps is not None and "epochs" not in self.mixture.beyond_weights:
            return max(self.stop.steps, self.begin[0].step)  # no need to plan every pass that it takes
        (epoch, pack, steps), tokens = self.begin
        while self.stop.epochs is None or epoch < self.stop.epochs:
            if self._reached(steps, tokens) or self.mixture.is_over(epoch):
                break
            per_step = _tokens_per_step(self.plan(epoch), pack)
            if self.stop.tokens is not None:
                reached = np.flatnonzero(tokens + np.cumsum(per_step) >= self.stop.tokens)
                if len(reached):
                    steps += int(reached[0]) + 1
                    break
            steps, tokens, epoch, pack = steps + len(per_step), tokens + int(per_step.sum()), epoch + 1, 0
        return min(steps, max(self.stop.steps or steps, self.begin[0].step))

    def _reached(self, steps: int, tokens: int) -> bool:
        return (self.stop.steps is not None and steps >= self.stop.steps) or (
            self.stop.tokens is not None and tokens >= self.stop.tokens
        )

    def __iter__(self) -> Iterator[Step]:
        num_steps = self.num_steps()
        while self.cursor.step < num_steps:
            yield self._next()

    def _next(self) -> Step:
        self.wait()
        epoch, first_pack, step = self.cursor
        plan = self.plan(epoch)
        packs = plan.step_packs(first_pack)
        ranks = [self._micro_batches(plan, rank_packs(packs, rank, self.world)) for rank in range(self.world)]
        everything = [batch for micro_batches in ranks for batch in micro_batches]
        totals = count(everything)
        if totals["weight"] <= 0:
            names = sorted({segment.sample_id for batch in everything for segment in batch.segments})[:5]
            raise WorkError(
                f"step {step + 1} has no target: no token of it carries loss",
                where=", ".join(names),
                fix="take these rows out, or raise batch.tokens so that others are in the step too",
            )
        after = Cursor(epoch, packs.stop, step + 1)
        self.cursor = after if packs.stop < plan.num_packs else Cursor(epoch + 1, 0, step + 1)
        num_targets = sum(batch.num_targets for batch in everything)
        num_tokens = sum(batch.num_tokens for batch in everything)
        self.tokens += num_tokens
        return Step(Cursor(epoch, first_pack, step), ranks[self.rank], totals, num_tokens, num_targets)

    def _micro_batches(self, plan: Plan, packs: list[int | None]) -> list[Batch]:
        cuts = range(0, len(packs), self.micro_packs)
        return [make_batch(plan, self.mixture, packs[begin : begin + self.micro_packs]) for begin in cuts]


@dataclass(frozen=True)
class FixedBatches:
    """The micro-batches of a plan, made anew at each pass: the validation rows, always in the same order.

    `num_packs`: take only the first so many packs.
    """

    plan: Plan
    mixture: Mixture
    micro_packs: int
    num_packs: int | None = None

    def __iter__(self) -> Iterator[Batch]:
        end = min(self.plan.num_packs, self.num_packs or self.plan.num_packs)
        for begin in range(0, end, self.micro_packs):
            yield make_batch(self.plan, self.mixture, range(begin, min(begin + self.micro_packs, end)))

    @cached_property
    def totals(self) -> dict[str, float]:
        """The denominators of all batches together."""
        return count(self)

    @property
    def num_targets(self) -> int:
        return sum(batch.num_targets for batch in self)


def _tokens_per_step(plan: Plan, first_pack: int) -> np.ndarray:
    per_segment = np.concatenate([[0], np.cumsum(plan.end - plan.start)])
    bounds = plan.pack_start[first_pack :: plan.layout.packs_per_step]
    if (plan.num_packs - first_pack) % plan.layout.packs_per_step:
        bounds = np.append(bounds, plan.pack_start[-1])
    return np.diff(per_segment[bounds])
