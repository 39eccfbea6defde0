"""Smoke test of an installed wheel without extras: trace a net of our own and predict its time."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

bin_folder = Path(sys.executable).parent


def prenet(*words: str) -> str:
    """Runs the installed command and gives what it printed."""
    done = subprocess.run(
        [str(bin_folder / "prenet"), *words], check=True, capture_output=True, text=True
    )
    return done.stdout


start = time.perf_counter()
import prenet_gnn  # noqa: E402

seconds = time.perf_counter() - start
assert "torch" not in sys.modules, "import prenet_gnn must not load torch"
assert seconds < 0.5, f"import prenet_gnn took {seconds:.2f} s"
assert prenet_gnn.__version__ == version("prenet-gnn")
assert (Path(prenet_gnn.__file__).parent / "py.typed").is_file()

import torch  # noqa: E402

from prenet_gnn import Workload, load_predictor  # noqa: E402
from tracing import OpGraph, trace  # noqa: E402

net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(16, 10),
)
graph = trace(net, (torch.randn(8, 3, 32, 32),))
conv, linear = 2 * 8 * 30 * 30 * 16 * 3 * 9, 2 * 8 * 16 * 10
assert graph.total_flops == conv + linear, graph.total_flops
path = Path(sys.prefix) / "graph.json"
graph.to_json(path)
assert OpGraph.from_json(path).total_flops == graph.total_flops
prediction = load_predictor().predict(graph, hardware="Tesla T4", workload=Workload())
assert 0 < prediction.low_s <= prediction.seconds <= prediction.high_s
assert "H100" in prenet("hardware")
assert "Tesla T4" in prenet("predict", str(path), "--hardware", "Tesla T4")
print(f"smoke test passed with torch {torch.__version__}: {prediction.seconds * 1e3:.2f} ms")
