"""Message passing over the graph of operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv, GINEConv, MessagePassing, SAGEConv

from prenet_gnn.encoding.fields import EDGE


class _ScatterRows(torch.autograd.Function):
    """Sums rows into places; its gradient is a plain selection of rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, size: int) -> Tensor:
        """`out[index[i]] += rows[i]`, `(E, H)` to `(size, H)`."""
        ctx.save_for_backward(index)
        places = index[:, None].expand_as(rows)
        return rows.new_zeros(size, rows.shape[1]).scatter_add_(0, places, rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Gradient of the rows."""
        (index,) = ctx.saved_tensors
        return grads[0].index_select(0, index), None, None


class OperatorConv(MessagePassing):
    r"""Lets every call see what feeds it and what it feeds.

    .. math:: h'_i = h_i + W \phi\Big[h_i, \sum_j \hat w_{ji} m(h_j, e_{ji}),
              \sum_k \hat w_{ik} m'(h_k, e_{ik})\Big]

    The weights are how many tensors run along an edge, normalised over the edges of a call, so that
    a class of equal calls gets the same sum as each of its members.

    Shapes:
        `x (N, H)`, `edge_index (2, E)`, `edge_attr (E, EDGE.width)` -> `(N, H)`
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
        into, out_of, size = (EDGE.span(edge_attr, name, name) for name in EDGE.names)
        fed = self._mean(self.to_consumer, x, edge_index, into, size)
        feeds = self._mean(self.to_producer, x, edge_index.flip(0), out_of, size)
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

    def aggregate(
        self,
        inputs: Tensor,
        index: Tensor,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
    ) -> Tensor:
        """Sums what arrives at every call."""
        summed: Tensor = _ScatterRows.apply(inputs, index, dim_size)
        return summed

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


class _TwoWays(nn.Module):
    """A layer of torch-geometric over the edges and over their reverse, with a way around it.

    Shapes:
        `x (N, H)`, `edge_index (2, E)`, `edge_attr (E, 3)` -> `(N, H)`
    """

    takes_edges = True

    def __init__(self, hidden: int) -> None:
        """One layer for each direction."""
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.ways = nn.ModuleList(self.make(hidden) for _ in range(2))
        self.mix = nn.Linear(2 * hidden, hidden)

    def make(self, hidden: int) -> nn.Module:
        """The layer of one direction."""
        raise NotImplementedError

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """One step of message passing."""
        h, more = self.norm(x), (edge_attr,) if self.takes_edges else ()
        there, back = self.ways[0](h, edge_index, *more), self.ways[1](h, edge_index.flip(0), *more)
        mixed: Tensor = self.mix(nn.functional.silu(torch.cat([there, back], dim=-1)))
        return x + mixed


class Sage(_TwoWays):
    """GraphSAGE (Hamilton et al. 2017): mean over neighbours, blind to edges."""

    takes_edges = False

    def make(self, hidden: int) -> nn.Module:
        """The layer of one direction."""
        made: nn.Module = SAGEConv(hidden, hidden)
        return made


class GatV2(_TwoWays):
    """Attention over neighbours that sees the edges (Brody et al. 2022)."""

    def make(self, hidden: int) -> nn.Module:
        """The layer of one direction; four heads where the width allows."""
        heads = 4 if hidden % 4 == 0 else 1
        made: nn.Module = GATv2Conv(
            hidden, hidden // heads, heads, edge_dim=EDGE.width, add_self_loops=False
        )
        return made


class Gine(_TwoWays):
    """Sums of neighbours with their edges (Hu et al. 2020)."""

    def make(self, hidden: int) -> nn.Module:
        """The layer of one direction."""
        net = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        made: nn.Module = GINEConv(net, edge_dim=EDGE.width)
        return made


CONVS: dict[str, type[nn.Module]] = {
    "operator": OperatorConv,
    "sage": Sage,
    "gatv2": GatV2,
    "gine": Gine,
    "none": NoConv,
}
