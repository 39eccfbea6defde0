"""Small whole models that the zoo's libraries lack: recurrent, fully connected, graph networks."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from prenet_gnn.measuring.errors import MeasureError
from prenet_gnn.measuring.models.spec import Options, Shape, register

if TYPE_CHECKING:
    import torch


@register("net:mlp", classes=1000, depth=4, width=1024, **{"in": 784})
def _mlp(options: Options, shape: Shape) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    import torch
    from torch import nn

    layers: list[nn.Module] = []
    width = options["in"]
    for _ in range(options["depth"]):
        layers += [nn.Linear(width, options["width"]), nn.ReLU()]
        width = options["width"]
    layers.append(nn.Linear(width, options["classes"]))
    return nn.Sequential(*layers), (torch.randn(shape.batch_size, options["in"]),)


@register("net:recurrent", classes=10, dim=256, hidden=256, kind="lstm", layers=2, vocab=10000)
def _recurrent(options: Options, shape: Shape) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    import torch
    from torch import nn

    kinds = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
    if options["kind"] not in kinds:
        raise MeasureError(f"no recurrent kind '{options['kind']}'. Known: gru, lstm, rnn.")

    class TextClassifier(nn.Module):
        """Embedding, recurrent layers, a head on the last step."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(options["vocab"], options["dim"])
            self.recurrent = kinds[options["kind"]](
                options["dim"], options["hidden"], num_layers=options["layers"], batch_first=True
            )
            self.head = nn.Linear(options["hidden"], options["classes"])

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            """`(B, S)` tokens -> `(B, classes)`."""
            output: torch.Tensor = self.head(self.recurrent(self.embedding(tokens))[0][:, -1])
            return output

    tokens = torch.randint(0, options["vocab"], (shape.batch_size, shape.seq))
    return TextClassifier(), (tokens,)


@register(
    "net:graph", classes=10, degree=8, features=64, hidden=128, kind="sage", layers=3, nodes=256
)
def _graph(options: Options, shape: Shape) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """A batch is one disconnected union of `batch_size` random graphs of `nodes` nodes."""
    import torch
    from torch import nn

    convolution = _graph_convolution(options["kind"])
    widths = [options["features"]] + [options["hidden"]] * options["layers"]

    class NodeClassifier(nn.Module):
        """Graph convolutions with ReLU between, a linear head on each node."""

        def __init__(self) -> None:
            super().__init__()
            pairs = itertools.pairwise(widths)
            self.convolutions = nn.ModuleList([convolution(a, b) for a, b in pairs])
            self.head = nn.Linear(widths[-1], options["classes"])

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            """`(N, F)` nodes, `(2, E)` edges -> `(N, classes)`."""
            for layer in self.convolutions:
                x = layer(x, edge_index).relu()
            output: torch.Tensor = self.head(x)
            return output

    nodes = options["nodes"]
    starts = torch.arange(shape.batch_size * nodes).repeat_interleave(options["degree"])
    ends = torch.randint(0, nodes, starts.shape) + (starts // nodes) * nodes
    x = torch.randn(shape.batch_size * nodes, options["features"])
    return NodeClassifier(), (x, torch.stack((starts, ends)))


def _graph_convolution(kind: str) -> Any:
    from torch import nn
    from torch_geometric import nn as pyg

    kinds = {
        "sage": pyg.SAGEConv,
        "graph": pyg.GraphConv,
        "gin": lambda a, b: pyg.GINConv(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))),
        # Self-loops would make the number of edges depend on the data
        "gat": lambda a, b: pyg.GATv2Conv(a, b, add_self_loops=False),
    }
    if kind not in kinds:
        raise MeasureError(f"no graph convolution '{kind}'. Known: {', '.join(sorted(kinds))}.")
    return kinds[kind]
