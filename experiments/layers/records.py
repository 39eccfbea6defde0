"""Our own records of single layers (`prenet measure --sweep layers`) as tables for PreNeT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from experiments.layers.tables import GATES, Work, convolution, recurrent, row_of, with_features
from experiments.shared.results import EXPERIMENTS
from prenet_gnn.measuring.models import Value, parse_spec

if TYPE_CHECKING:
    from prenet_gnn.data.records import MeasuredRecord

RECORDS = EXPERIMENTS / "records"
OPTIMIZERS = ("none", "sgd", "adam", "adamw")
DEFAULT_IMAGE, DEFAULT_SEQ = 56, 128


def read_layers(folder: Path = RECORDS) -> list[MeasuredRecord]:
    """All finished records of single layers that are in the repository."""
    from prenet_gnn.data.record_file import read_records

    records = [
        record for path in sorted(folder.glob("*.jsonl.gz")) for record in read_records(path)
    ]
    return [r for r in records if r.model.startswith("layer:") and r.seconds is not None]


def record_tables(records: Sequence[MeasuredRecord]) -> dict[str, pd.DataFrame]:
    """One table per family; forward and training runs together, as PreNeT times whole steps."""
    lines: dict[str, list[dict[str, object]]] = {}
    for record in records:
        name, options = parse_spec(record.model)
        family = name.removeprefix("layer:")
        if family == "positional":
            continue
        size = {
            "batch": record.batch_size,
            "image": record.image_size or DEFAULT_IMAGE,
            "seq": record.seq_len or (1 if family == "dense" else DEFAULT_SEQ),
        }
        work, flops = work_of_layer(family, options, size)
        workload = record.workload
        row = row_of(
            work,
            device=record.device,
            precision="fp32",
            seconds=record.seconds,
            size_backward=float(workload.mode == "train"),
            size_channels_last=float(workload.channels_last),
            **{f"size_{o}": float(workload.optimizer == o) for o in OPTIMIZERS},
            **_extra(family, options),
        )
        # forward, and both gradients in training
        row["flops_forward"] = flops
        row["flops_all"] = flops * (3.0 if workload.mode == "train" else 1.0)
        lines.setdefault(family, []).append(row)
    return {f"own {family}": with_features(pd.DataFrame(rows)) for family, rows in lines.items()}


def work_of_layer(
    family: str, o: Mapping[str, Value], size: Mapping[str, int]
) -> tuple[Work, float]:
    """Sizes of a layer of the sweep and its forward FLOPs."""
    number = {key: int(value) for key, value in o.items() if isinstance(value, int)}
    batch, seq, image = size["batch"], size["seq"], size["image"]
    if family == "dense":
        rows = batch * seq
        work = Work(1, rows, number["out"], number["in"], read=rows * number["in"])
        work = replace(work, weights=number["in"] * number["out"])
    elif family == "conv":
        padding = number["kernel"] // 2 if o["padding"] == "same" else 0
        work = convolution(
            {
                "batch": batch, "in_size": image, "in_ch": number["in"], "out_ch": number["out"],
                "kernel": number["kernel"], "stride": number["stride"], "padding": padding,
                "groups": number["groups"],
            }
        )  # fmt: skip
    elif family == "attention":
        dim, heads = number["dim"], number["heads"]
        work = Work(batch * heads, seq, seq, dim / heads, weights=4 * dim * dim)
        work = replace(work, read=batch * seq * dim)
        # four projections, scores and their weighted sum
        return work, 8.0 * batch * seq * dim * dim + 4.0 * batch * seq * seq * dim
    elif family == "recurrent":
        shape = {"steps": seq, "batch": batch, "hidden": number["hidden"], "in": number["in"]}
        work = recurrent({**shape, "gates": GATES[str(o["kind"])], "layers": number["layers"]})
        return work, work.flops * (1 + number["bidirectional"])
    else:
        work = _rowwise(family, number, batch, seq, image)
    return work, work.flops


def _rowwise(family: str, o: Mapping[str, int], batch: int, seq: int, image: int) -> Work:
    rows, cols, inner = batch * seq, o.get("dim", 1), o.get("vocab", 1)
    if family == "batchnorm":
        rows, cols = batch * image * image, o["channels"]
    return Work(1, rows, cols, inner, read=rows * cols, is_product=False)


def _extra(family: str, o: Mapping[str, Value]) -> dict[str, float]:
    """Options that sizes do not show."""
    if family == "recurrent":
        kinds = {f"size_{kind}": float(o["kind"] == kind) for kind in GATES}
        return {**kinds, "size_directions": 1.0 + int(o["bidirectional"])}
    return {"size_activation": float(o["act"] != "none")} if "act" in o else {}
