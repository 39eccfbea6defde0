"""The calls of every row: what belongs to a call, repeated for each row that runs its graph."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from prenet_gnn.encoding.batch import GraphBatch
from prenet_gnn.encoding.fields import DEVICE, NODE, RUN, WORK
from tracing.costs.vocab import KINDS


class Calls:
    """The M calls of all rows of a batch.

    Shapes:
        `kind (M,)`, position in `tracing.costs.vocab.KINDS`; `flops`, `moved_bytes`, `kernels` and
        `dispatched`, forward and backward `(M, 2)`; `count (M,)`, equal calls that each stands for.
    """

    def __init__(self, batch: GraphBatch) -> None:
        """Takes the batch."""
        self.batch = batch

    def spread(self, values: Tensor) -> Tensor:
        """From distinct calls to those of every row: `(N, ...)` to `(M, ...)`."""
        return values[self.batch.call]

    def of_row(self, values: Tensor) -> Tensor:
        """From rows to their calls: `(G, ...)` to `(M, ...)`."""
        return values[self.batch.row]

    def number(self, name: str) -> Tensor:
        """A column of `fields.NODE` of the distinct calls: `(N,)`."""
        found: Tensor = NODE.of(self.batch.numbers, name)
        return found

    def device(self, name: str) -> Tensor:
        """A column of `fields.DEVICE`, for every call: `(M,)`."""
        return self.of_row(DEVICE.of(self.batch.device, name))

    def run(self, name: str) -> Tensor:
        """Whether a flag of `fields.RUN` is set, for every call: `(M,)`."""
        return self.of_row(RUN.of(self.batch.run, name) > 0)

    def _work(self, name: str) -> Tensor:
        return self.spread(WORK.pair(self.batch.work, name))

    @cached_property
    def kind(self) -> Tensor:
        """Position of every call's kind."""
        return self.spread(self.batch.numbers[:, : len(KINDS)].argmax(dim=-1))

    @cached_property
    def flops(self) -> Tensor:
        """Arithmetic."""
        return self._work("flops")

    @cached_property
    def moved_bytes(self) -> Tensor:
        """Memory traffic."""
        return self._work("bytes")

    @cached_property
    def kernels(self) -> Tensor:
        """Kernels launched on the device."""
        return self._work("kernels")

    @cached_property
    def dispatched(self) -> Tensor:
        """Operators that the host dispatches."""
        return self._work("calls")

    @cached_property
    def count(self) -> Tensor:
        """How many calls of its graph each stands for."""
        return self.spread(self.batch.count)

    @cached_property
    def runs_last(self) -> Tensor:
        """Whether every call finds its input in the channels-last layout: `(M,)`."""
        lies_last = (self.number(f"last_in_{name}") > 0 for name in ("plain", "last"))
        plain, last = (self.spread(flags) for flags in lies_last)
        return last.where(self.run("channels_last"), plain)

    def sum_per_row(self, values: Tensor) -> Tensor:
        """Adds up what equal calls take, by row: `(M, ...)` to `(G, ...)`; times add."""
        weighted = values * self.count[:, None]
        zeros = torch.zeros(self.batch.rows, *values.shape[1:], dtype=values.dtype)
        return zeros.index_add_(0, self.batch.row, weighted)
