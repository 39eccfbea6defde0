"""Rates of single kinds of call, read off whole steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from networks import small
from test_training import made_up_rows
from torch import nn

from experiments.early_fp64 import LIMITS, limits, terms
from experiments.leftover import chosen_calls, leftover
from prenet_gnn.encoding.encode import encode
from prenet_gnn.encoding.latents import Latents
from prenet_gnn.encoding.template import build_template
from prenet_gnn.errors import PreNetError
from prenet_gnn.training.fit import Fitted
from prenet_gnn.training.store import EntryKey
from tracing import trace

V100 = "Tesla V100-PCIE-32GB"


def test_the_limit_that_made_the_times_explains_them_best() -> None:
    rows = made_up_rows()
    frame = rows.frame.assign(mode="infer", precision="fp64", framework="torch-unknown", gpu=V100)
    frame = pd.concat([frame, frame], ignore_index=True)
    keys = rows.keys * 2
    rates = np.array([0.2, 5.0, 0.5, 1.0, 3.0])  # seconds per TFLOP, TB and million kernels
    true = np.array([rates @ terms(rows.store.entries[key], 64) for key in keys])
    workloads = [
        replace(
            w,
            mode="infer",
            precision="fp64",
            framework="torch-unknown",
            optimizer="none",
            timed="forward",
        )
        for w in rows.workloads
    ]
    made = replace(rows, frame=frame, keys=keys, workloads=workloads * 2, seconds=true)
    table = limits(made)
    assert list(table["rows"]) == [24]
    errors = table[list(LIMITS)].iloc[0]
    # networks of 32, 48, 64 and 96 channels: any limit above 48 and up to 64 parts them alike
    assert errors[64] < 1e-6 and errors.idxmin() == 64
    assert errors[32] > 0.01 and errors[128] > 0.01


def test_no_row_of_early_float64_is_said() -> None:
    with pytest.raises(PreNetError, match="float64"):
        limits(made_up_rows())


def test_what_others_leave_is_the_time_of_the_chosen_calls() -> None:
    rows = made_up_rows()
    wide = nn.Conv2d(256, 256, 9, groups=256, padding=4)
    graph = trace(
        nn.Sequential(nn.Conv2d(3, 256, 3), wide).eval(), (torch.zeros(8, 3, 64, 64),), loss="none"
    )
    encoded = encode(build_template(graph, "fp32"), 8, "fp32")
    key = EntryKey(rows.keys[0].graph, "fp32", 8)
    rows.store.entries[key] = encoded
    model = small()
    frame = rows.frame.iloc[:1].assign(model="one", mode="infer")
    workload = replace(rows.workloads[0], mode="infer", optimizer="none", timed="forward")
    one = replace(rows, frame=frame, keys=[key], workloads=[workload], seconds=np.array([1.0]))
    fitted = Fitted(model, Latents(), [])
    calls = chosen_calls(encoded, "wide-depthwise")
    assert calls.sum() == 1
    table = leftover(one, np.array([0]), fitted, "wide-depthwise").iloc[0]
    flops = encoded.pair("flops")[calls, 0].sum()
    assert table["share"] > 0.9
    assert table["TFLOP/s"] == pytest.approx(flops / table["share"] / 1e12)
    with pytest.raises(PreNetError, match="narrow-groups"):
        leftover(one, np.array([0]), fitted, "narrow-groups")
