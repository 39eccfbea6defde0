"""Measures real iterations on this machine: single models, sweeps of layers and models.

A `point` (one of a sweep's, `sweeps`) is built (`building`, with `models` that the zoo lacks,
`materialize` and `loss`) and run (`runner`) on one of the machine's `devices`: its `timing`,
`memory` and `facts` become a record. `sweep_run` goes through a sweep and `supervise` starts that
again when it dies. What records are for: `calibrating` and `scoring` a predictor, `checking` one
model; `graphs` traces what was measured. `device_entry` describes a device that nobody knows.

Names are loaded on first use; reading records needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prenet_gnn.common.lazy import lazy

if TYPE_CHECKING:
    from prenet_gnn.data.record_file import append_record, check_target, read_records
    from prenet_gnn.data.records import MeasuredRecord
    from prenet_gnn.measuring.building import build
    from prenet_gnn.measuring.device_entry import detect
    from prenet_gnn.measuring.errors import MeasureError
    from prenet_gnn.measuring.point import Effort, Point
    from prenet_gnn.measuring.runner import measure_model
    from prenet_gnn.measuring.supervise import supervised_sweep
    from prenet_gnn.measuring.sweep_run import SweepSettings, SweepSummary, run_sweep
    from prenet_gnn.measuring.sweeps import load_sweep

_HOME = {
    "Effort": "measuring.point",
    "MeasureError": "measuring.errors",
    "MeasuredRecord": "data.records",
    "Point": "measuring.point",
    "SweepSettings": "measuring.sweep_run",
    "SweepSummary": "measuring.sweep_run",
    "append_record": "data.record_file",
    "check_target": "data.record_file",
    "build": "measuring.building",
    "detect": "measuring.device_entry",
    "load_sweep": "measuring.sweeps",
    "measure_model": "measuring.runner",
    "read_records": "data.record_file",
    "run_sweep": "measuring.sweep_run",
    "supervised_sweep": "measuring.supervise",
}

__all__ = [
    "Effort",
    "MeasureError",
    "MeasuredRecord",
    "Point",
    "SweepSettings",
    "SweepSummary",
    "append_record",
    "build",
    "check_target",
    "detect",
    "load_sweep",
    "measure_model",
    "read_records",
    "run_sweep",
    "supervised_sweep",
]

__getattr__, __dir__ = lazy(globals(), _HOME)
