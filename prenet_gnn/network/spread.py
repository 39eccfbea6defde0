"""From the calls of distinct graphs to those of every row that runs them."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.data import Data

from prenet_gnn.encoding.fields import NUMBERS, size_log
from prenet_gnn.network.loops import turns
from tracing.costs.vocab import KINDS

COLUMN = {name: len(KINDS) + place for place, name in enumerate(NUMBERS)}
GROUPED_COLUMNS = slice(COLUMN["is_depthwise"], COLUMN["is_grouped"] + 1)
LAST_COLUMNS = [COLUMN["last_in_plain"], COLUMN["last_in_last"], COLUMN["converts_in_last"]]
FUSED_COLUMNS = slice(COLUMN["fused_reads"], COLUMN["fused_share"] + 1)


def _winograd(x: Tensor) -> Tensor:
    """Calls that are 3 x 3 convolutions of stride 1 without dilation: `(N,)`."""
    found: Tensor = (
        (x[:, KINDS.index("conv")] > 0)
        & ((x[:, COLUMN["log_kernel"]] - size_log(3 * 3)).abs() < 1e-4)
        & (x[:, COLUMN["log_stride"]] < 0.75)
        & (x[:, COLUMN["dilation"]] < 0.75)
    )
    return found


def _wide(x: Tensor) -> Tensor:
    """Depthwise convolutions whose kernels look at more than 7 x 7 positions: `(N,)`."""
    found: Tensor = (x[:, COLUMN["is_depthwise"]] > 0) & (
        x[:, COLUMN["log_kernel"]] > size_log(7 * 7) + 1e-4
    )
    return found


def spread(data: Data) -> Data:
    """Repeats what belongs to calls for every row that runs the graph: `(N, ...)` to `(M, ...)`."""
    take = data.take
    return Data(
        x=data.x[:, len(KINDS) : len(KINDS) + 3][take],
        grouped=data.x[:, GROUPED_COLUMNS].any(dim=-1)[take],
        pointwise=(data.x[:, COLUMN["is_pointwise_conv"]] > 0)[take],
        winograd=_winograd(data.x)[take],
        fused=data.x[:, FUSED_COLUMNS][take],
        turns=turns(data.operator, data.x[:, COLUMN["log_out"]], data.x[:, COLUMN["log_space"]])[
            take
        ],
        wide=_wide(data.x)[take],
        lies_last=data.x[:, LAST_COLUMNS][take],
        kind=data.x[:, : len(KINDS)].argmax(dim=-1)[take],
        work=data.work[take],
        count=data.count[take],
        take=take,
        batch=data.batch,
        device=data.device,
        run=data.run,
        phases=data.phases,
        step=data.step,
        views=data.views,
        latents=data.latents,
        floor=data.floor,
        num_nodes=len(take),
    )
