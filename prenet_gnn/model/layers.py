"""Message passing over the graph of operators."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing


class OperatorConv(MessagePassing):
    r"""Lets every call see what feeds it and what it feeds.

    .. math:: h'_i = h_i + W \phi\Big[h_i, \sum_j \hat w_{ji} m(h_j, e_{ji}),
              \sum_k \hat w_{ik} m'(h_k, e_{ik})\Big]

    The weights are how many tensors run along an edge, normalised over the edges of a call, so that
    a class of equal calls gets the same sum as each of its members.

    Shapes:
        `x (N, H)`, `edge_index (2, E)`, `edge_attr (E, 3)` (weight into the consumer, weight out of
        the producer, log size) -> `(N, H)`
    """

    def __init__(self, hidden: int) -> None:
        """Two message functions, one for each direction."""
        super().__init__(aggr="sum")
        self.to_consumer = nn.Linear(hidden + 1, hidden)
        self.to_producer = nn.Linear(hidden + 1, hidden)
        self.update_net = nn.Sequential(
            nn.Linear(3 * hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden)
        )
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """One step of message passing."""
        size = edge_attr[:, 2:]
        back = edge_index.flip(0)
        fed = self._mean(self.to_consumer, x, edge_index, edge_attr[:, :1], size)
        feeds = self._mean(self.to_producer, x, back, edge_attr[:, 1:2], size)
        update: Tensor = self.update_net(torch.cat([self.norm(x), fed, feeds], dim=-1))
        return x + update

    def _mean(
        self, net: nn.Linear, x: Tensor, edge_index: Tensor, weight: Tensor, size: Tensor
    ) -> Tensor:
        # transform nodes before they are gathered: there are fewer nodes than edges
        sent = nn.functional.linear(x, net.weight[:, :-1], net.bias)
        total = self.propagate(
            edge_index, x=sent, weight=weight, size_term=size * net.weight[:, -1]
        )
        ones = torch.zeros(len(x), 1, dtype=x.dtype).index_add_(0, edge_index[1], weight)
        mean: Tensor = total / ones.clamp(min=1.0)
        return mean

    def message(self, x_j: Tensor, weight: Tensor, size_term: Tensor) -> Tensor:
        """What one call sends along an edge."""
        return weight * nn.functional.silu(x_j + size_term)


class NoConv(nn.Module):
    """Passes nothing: the ablation without message passing."""

    def __init__(self, hidden: int) -> None:
        """Takes the width like every layer; it has no use for it."""
        super().__init__()
        self.hidden = hidden

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Returns the nodes unchanged."""
        return x


CONVS: dict[str, type[nn.Module]] = {"operator": OperatorConv, "none": NoConv}
