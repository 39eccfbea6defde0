"""By which factors calls miss their physics, learned from their embeddings and the way to run."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prenet_gnn.encoding.fields import RUN
from prenet_gnn.network.latents import RowLatents
from prenet_gnn.network.physics.calls import Calls
from tracing.costs.vocab import KINDS

# A correction is learned from graphs of training, and an unseen network can be unlike all of them.
# The hyperbolic tangent that bounds it says how wrong it can get.
# Largest correction, as a natural logarithm: a factor of 20 each way.
MAX_LOG = 3.0
# That of the memory traffic of kernels that pass over tensors: a factor of 3.3, chosen by hand, for
# learned corrections of such calls are mostly smaller on training rows, while copies of MViTv2 came
# out many times too slow where that family was held out in a run of `experiments.accuracy`.
MAX_PASS_LOG = 1.2
PASSES = (
    "linear", "batch_norm", "layer_norm", "rms_norm", "softmax", "activation", "binary", "unary",
    "copy", "dropout", "view",
)  # fmt: skip
# What is corrected, each forward and backward.
OUTPUTS = ("arithmetic", "traffic", "launches", "dispatch")
SETTING_STD = 0.3


def correction_limits() -> Tensor:
    """Bounds of the head's outputs for each kind of call, `(len(KINDS), 8)`, logarithms."""
    limits = torch.full((len(KINDS), len(OUTPUTS), 2), MAX_LOG)
    limits[[KINDS.index(kind) for kind in PASSES], OUTPUTS.index("traffic")] = MAX_PASS_LOG
    return limits.flatten(1)


@dataclass(frozen=True)
class Corrections:
    """Factors on the seconds of every call, forward and backward, each `(M, 2)`."""

    arithmetic: Tensor
    traffic: Tensor
    launches: Tensor
    dispatch: Tensor


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """Size of the head.

    Attributes:
        hidden: Width of the part that knows how the graph is run.
    """

    hidden: int = 64


class CorrectionHead(nn.Module):
    """Starts at factors of one; flags that no row has set move nothing.

    Shapes:
        embeddings `(N, H)` -> `Corrections` of `(M, 2)`
    """

    def __init__(self, config: HeadConfig, embedding: int, settings: int) -> None:
        """Takes its size, the width of embeddings and that of latents of settings."""
        super().__init__()
        width, outputs = config.hidden, 2 * len(OUTPUTS)
        self.before_run = nn.Sequential(
            nn.LayerNorm(embedding),
            nn.Linear(embedding, embedding),
            nn.SiLU(),
            nn.Linear(embedding, width),
        )
        self.run_film = nn.Linear(RUN.width, 2 * width, bias=False)
        self.after_run = nn.Sequential(
            nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, outputs)
        )
        for parameter in self.after_run[-1].parameters():
            nn.init.zeros_(parameter)
        nn.init.zeros_(self.run_film.weight)
        if settings:
            self.setting_film = nn.Linear(settings, 2 * width, bias=False)
            nn.init.normal_(self.setting_film.weight, std=SETTING_STD)
        self.register_buffer("limit", correction_limits(), persistent=False)
        self.limit: Tensor

    def forward(self, embedded: Tensor, calls: Calls, latents: RowLatents) -> Corrections:
        """Factors of every call."""
        film = self.run_film(calls.batch.run)
        if latents.setting is not None:
            film = film + self.setting_film(latents.setting)
        gain, shift = film.chunk(2, dim=-1)
        before = calls.spread(self.before_run(embedded))
        h = torch.addcmul(calls.of_row(shift), before, 1.0 + calls.of_row(gain))
        limit = self.limit[calls.kind]
        scale = (limit * torch.tanh(self.after_run(h) / limit)).exp()
        return Corrections(*scale.chunk(len(OUTPUTS), dim=-1))
