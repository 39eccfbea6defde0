"""Where the time of a prediction goes: the seconds of every operator call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from prenet_gnn.predictor.prediction import CallShare
from prenet_gnn.workload.workload import Workload

if TYPE_CHECKING:
    from prenet_gnn.encoding.template import Template
    from tracing import OpGraph


@dataclass(frozen=True, slots=True)
class Breakdown:
    """What is needed to share a prediction out among the calls of its graph.

    Attributes:
        graph: The graph.
        workload: How it is run; phases that are not timed take nothing.
        node: Seconds of every distinct call, forward and backward `(U, 2)`.
        scale: What they are multiplied by, so that they add up to the prediction.
    """

    graph: OpGraph
    workload: Workload
    node: np.ndarray
    scale: float

    def shares(self, template: Template) -> tuple[CallShare, ...]:
        """Seconds of every call that takes any; `template` has the graph's distinct calls."""
        billed = template.members >= 0
        seconds = np.zeros((len(self.graph.nodes), 2))
        own = self.node[template.members[billed]] * self.scale
        np.add.at(seconds, template.origins[billed], own)
        chosen = set(self.workload.phases)
        shares = []
        for index in np.unique(template.origins[billed]):
            call = self.graph.nodes[index]
            forward = ("loss" if call.kind == "loss" else "forward") in chosen
            shares.append(
                CallShare(
                    call.module,
                    call.target,
                    float(seconds[index, 0]) * forward,
                    float(seconds[index, 1]) * ("backward" in chosen),
                    call.index,
                )
            )
        return tuple(shares)
