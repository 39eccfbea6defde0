"""Embeds every call by what it is and what surrounds it; neither device nor way to run enters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prenet_gnn.encoding.batch import GraphBatch
from prenet_gnn.encoding.fields import NODE, OPERATORS
from prenet_gnn.network.message_passing import CONVS

OPERATOR_STD = 0.1


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Size of the encoder.

    Attributes:
        hidden: Width of embeddings.
        layers: Message passing steps; at most `encoding.template.ROUNDS`.
        conv: Message passing layer, a key of `message_passing.CONVS`.
        operator_embedding: Width of the embedding of operator names.
        dropout: Dropout on embeddings.
        operator_dropout: Share of the calls that hide their operator's name in training, so that
            kind and sizes carry what they can for operators that no row has.
    """

    hidden: int = 64
    layers: int = 1
    conv: str = "operator"
    operator_embedding: int = 8
    dropout: float = 0.0
    operator_dropout: float = 0.1


class CallEncoder(nn.Module):
    """Embeds the distinct calls of a batch, so rows of one graph share this pass.

    Shapes:
        `numbers (N, NODE.width)`, `operator (N,)`, edges -> `(N, H)`
    """

    def __init__(self, config: EncoderConfig) -> None:
        """Takes its size."""
        super().__init__()
        self.config = config
        self.operator = nn.Embedding(len(OPERATORS) + 1, config.operator_embedding)
        # an operator that no row has must not stand out
        nn.init.normal_(self.operator.weight, std=OPERATOR_STD)
        self.mlp = nn.Sequential(
            nn.Linear(NODE.width + config.operator_embedding, config.hidden),
            nn.SiLU(),
            nn.Linear(config.hidden, config.hidden),
        )
        self.convs = nn.ModuleList(CONVS[config.conv](config.hidden) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)
        # operators whose names it does not look at
        self.register_buffer("hidden_names", torch.zeros(len(OPERATORS) + 1, dtype=torch.bool))
        self.hidden_names: Tensor

    def forward(self, batch: GraphBatch) -> Tensor:
        """Embeddings of all distinct calls."""
        name = torch.where(self.hidden_names[batch.operator], 0, batch.operator)
        if self.training and self.config.operator_dropout:
            hidden = torch.rand(len(name), device=name.device) < self.config.operator_dropout
            name = torch.where(hidden, 0, name)
        x = self.mlp(torch.cat([batch.numbers, self.operator(name)], dim=-1))
        for conv in self.convs:
            x = conv(x, batch.edge_index, batch.edge_numbers)
        embedded: Tensor = self.dropout(x)
        return embedded
