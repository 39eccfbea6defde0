"""Bytes kept for the backward pass against real runs on the CPU."""

from __future__ import annotations

from functools import partial

import torch

from experiments.shared.ledger import Row
from experiments.tracing_tables.common import Study, errors
from prenet_gnn.measuring.memory import saved_for_backward_bytes
from tracing import trace
from tracing.costs.storages import saved_bytes

_SMALL = (
    "alexnet convnext_tiny densenet121 densenet169 efficientnet_b0 efficientnet_b1 efficientnet_b2 "
    "efficientnet_v2_s googlenet mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v2 "
    "mobilenet_v3_large mobilenet_v3_small regnet_x_400mf regnet_x_800mf regnet_x_1_6gf "
    "regnet_x_3_2gf regnet_y_400mf regnet_y_800mf regnet_y_1_6gf regnet_y_3_2gf resnet18 resnet34 "
    "resnet50 resnet101 resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 "
    "shufflenet_v2_x2_0 squeezenet1_0 squeezenet1_1 vgg11 vgg11_bn vgg13 vgg16_bn swin_t swin_v2_t "
    "vit_b_32"
)
NAMES = _SMALL.split()
LIMIT_PERCENT = 2
# These take images of one size only.
_FIXED = {"vit_b_32": 224, "swin_t": 224, "swin_v2_t": 256}


def row(name: str) -> Row:
    """Both figures of one model."""
    import torchvision

    options = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
    model = torchvision.models.get_model(name, weights=None, **options)
    side = _FIXED.get(name, 96)
    x = torch.randn(2, 3, side, side)
    ours = saved_bytes(trace(model, (x,), loss="none"), "cpu")
    real = saved_for_backward_bytes(model, lambda: model(x))
    error = round(100 * (ours / real - 1), 3)
    return {"bytes": ours, "autograd_bytes": real, "error_percent": error}


STUDY = Study("saved", lambda: NAMES, row, partial(errors, limit_percent=LIMIT_PERCENT))
