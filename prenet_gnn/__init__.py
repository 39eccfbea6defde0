"""Predicts how long a PyTorch model takes on an accelerator that is not at hand.

The rooms, in the order in which data flows; each imports only those above it:

* `common`: files, units and processes; nothing about models
* `catalogue`: devices and their prices
* `workload`: how a graph is run
* `encoding`: a traced graph, a device and a workload as arrays
* `network`: arrays to seconds
* `memory`: bytes at the peak of an iteration
* `predictor`: a graph to a prediction, calibrated or not; tables of them
* `planning`: devices compared, whole runs planned
* `reporting`: the HTML file about it
* `data`: measured rows, their graphs, and how they are split
* `training`, `evaluation`, `tuning`: fits networks, scores them, searches their settings
* `measuring`: real runs on this machine, and what they are for
* `cli`: the command `prenet`

Names are loaded on first use, so `import prenet_gnn` costs no time and needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prenet_gnn.common.lazy import lazy
from prenet_gnn.common.version import VERSION as __version__

if TYPE_CHECKING:
    from prenet_gnn.catalogue.devices import Hardware, get_hardware, list_hardware
    from prenet_gnn.errors import (
        CheckpointError,
        ConfigError,
        DataError,
        PreNetError,
        UnknownHardwareError,
    )
    from prenet_gnn.planning import compare, plan
    from prenet_gnn.predictor.loading import load_predictor
    from prenet_gnn.predictor.prediction import Prediction
    from prenet_gnn.predictor.predictor import Predictor
    from prenet_gnn.workload.workload import Workload

_HOME = {
    "CheckpointError": "errors",
    "ConfigError": "errors",
    "DataError": "errors",
    "Hardware": "catalogue.devices",
    "PreNetError": "errors",
    "Prediction": "predictor.prediction",
    "Predictor": "predictor.predictor",
    "UnknownHardwareError": "errors",
    "Workload": "workload.workload",
    "compare": "planning",
    "get_hardware": "catalogue.devices",
    "list_hardware": "catalogue.devices",
    "load_predictor": "predictor.loading",
    "plan": "planning",
}

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "Hardware",
    "PreNetError",
    "Prediction",
    "Predictor",
    "UnknownHardwareError",
    "Workload",
    "__version__",
    "compare",
    "get_hardware",
    "list_hardware",
    "load_predictor",
    "plan",
]

__getattr__, __dir__ = lazy(globals(), _HOME)
