"""Peak memory of one training iteration against PyTorch's MemTracker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from experiments.shared.ledger import Row
from experiments.tracing_tables.common import Study, errors
from prenet_gnn.memory.peak import peak_memory
from prenet_gnn.workload.workload import Workload
from tracing import trace
from tracing.zoo.common import on_meta

_VISION = (
    "alexnet densenet121 efficientnet_b0 mnasnet0_5 mobilenet_v2 mobilenet_v3_small "
    "regnet_x_400mf regnet_y_400mf resnet18 resnet50 resnext50_32x4d shufflenet_v2_x0_5 "
    "squeezenet1_1 vgg11 vgg16_bn"
)
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd_momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, foreach=False),
}
KEYS = [f"{name}, {optimizer}" for name in _VISION.split() for optimizer in OPTIMIZERS]
SHAPE = (8, 3, 96, 96)
LIMIT_PERCENT = 5


class Summed(nn.Module):
    """A model whose output is its loss, so that both sides see the same iteration."""

    def __init__(self, model: nn.Module) -> None:
        """Keeps the model."""
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of the outputs."""
        return self.model(x).sum()


def _build(name: str) -> nn.Module:
    import torchvision

    return Summed(torchvision.models.get_model(name, weights=None))


def tracked_bytes(name: str, optimizer: str) -> int:
    """Peak of the second iteration, as the tracker sees it on fake tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    mode, model = FakeTensorMode(), _build(name)
    for module in model.modules():
        for stored in (module._parameters, module._buffers):
            stored.update(
                {key: t if t is None else mode.from_tensor(t) for key, t in stored.items()}
            )
    with mode:
        x = torch.empty(SHAPE)
        stepper = OPTIMIZERS[optimizer](model.parameters())
        tracker = MemTracker()
        tracker.track_external(model, stepper, x)
        with tracker:
            for _ in range(2):
                loss = model(x)
                loss.backward()
                stepper.step()
                stepper.zero_grad()
                del loss
                tracker.reset_mod_stats()
        snapshot = tracker.get_tracker_snapshot("peak")
    return int(next(iter(snapshot.values()))["Total"])


def row(key: str) -> Row:
    """Both figures of one model and optimizer."""
    name, _, optimizer = key.partition(", ")
    model = on_meta(partial(_build, name))
    graph = trace(model, (torch.empty(SHAPE, device="meta"),), loss="none")
    workload = Workload(precision="fp32", optimizer=optimizer)
    ours = peak_memory(graph, workload, device="cpu").allocated_bytes
    theirs = tracked_bytes(name, optimizer)
    error = round(100 * (ours / theirs - 1), 2)
    return {"bytes": ours, "tracker_bytes": theirs, "error_percent": error}


STUDY = Study("memory", lambda: KEYS, row, partial(errors, limit_percent=LIMIT_PERCENT))
