"""The columns of the measured tables and the limits within which their numbers are believable."""

from __future__ import annotations

from prenet_gnn.data.reading import Range, Schema

# No step is shorter than one kernel launch or longer than an hour; outside, the unit is wrong.
_TIME_MS = Range(1e-3, 3.6e6)
_SIZE = Range(1, 1e7, whole=True)
MEASUREMENTS = Schema(
    text=(
        "source",
        "model",
        "library",
        "task",
        "gpu",
        "precision",
        "framework",
        "optimizer",
        "timed",
    ),
    optional_text=("cuda", "notes", "source_file", "memory_kind"),
    numbers={
        "n_gpus": Range(0, 1e5, required=True, whole=True),
        "batch_size": Range(1, 1e7, required=True, whole=True),
        "image_size": Range(8, 16384, whole=True),
        "seq_len": _SIZE,
        "step_time_ms": Range(1e-3, 3.6e6, required=True),
        "step_time_mean_ms": _TIME_MS,
        "step_time_std_ms": Range(0, 3.6e6),
        "n_iters": _SIZE,
        "fwd_ms": _TIME_MS,
        "bwd_ms": _TIME_MS,
        "samples_per_s": Range(1e-6, 1e9),
        "params_m": Range(1e-6, 1e7),
        "gmacs": Range(1e-6, 1e9),
        "macts": Range(1e-6, 1e9),
        "peak_memory_bytes": Range(1e6, 1e13),
    },
    bools=("channels_last", "compiled", "suspect"),
    optional_bools=("cudnn_benchmark",),
    optional=("memory_kind", "peak_memory_bytes"),
)
OPERATORS = Schema(
    text=("source", "op", "gpu", "precision", "pass", "shape", "framework"),
    optional_text=("split",),
    # Medians of whole microseconds can be zero for the smallest operators.
    numbers={"latency_ms": Range(0, 3.6e6, required=True)},
)
MEMORY = Schema(
    text=("source", "model", "library", "task", "gpu", "precision", "memory_kind", "framework"),
    optional_text=("config", "optimizer", "notes", "source_file"),
    numbers={
        "batch_size": Range(1, 1e7, required=True, whole=True),
        "image_size": Range(8, 16384, whole=True),
        "seq_len": _SIZE,
        "n_gpus": Range(0, 1e5, required=True, whole=True),
        "peak_memory_bytes": Range(1e6, 1e13, required=True),
    },
    bools=("suspect",),
)
PUBLISHED = Schema(
    text=(
        "run_id",
        "source",
        "system_id",
        "model",
        "library",
        "task",
        "gpu",
        "precision",
        "framework",
        "cuda",
        "optimizer",
        "timed",
        "host_cpu",
        "host_memory",
        "driver",
        "os",
        "source_file",
    ),
    optional_text=("head", "board"),
    numbers={
        "n_gpus": Range(1, 1e5, required=True, whole=True),
        "batch_size": Range(1, 1e7, required=True, whole=True),
        "image_size": Range(8, 16384, whole=True),
        "seq_len": _SIZE,
        "step_time_ms": Range(1e-3, 3.6e6, required=True),
        "step_time_std_ms": Range(0, 3.6e6),
        "n_iters": _SIZE,
        "runs": Range(1, 1e4, required=True, whole=True),
        # A slowest repeat that takes ten times the fastest is another measurement.
        "runs_spread": Range(0, 9, required=True),
    },
    bools=("channels_last", "compiled", "cudnn_benchmark"),
)
