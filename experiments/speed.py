"""How fast predictions are once a graph is traced, and what the command costs to start.

    python -m experiments.speed [--write] [--quick]

Seconds are those of the processor, added over threads, so that other load on the machine does not
count; rates are per second of one core. Commands run in processes of their own, each beside a bare
`import torch` of the same run. Time of a trace is in `experiments.tracing_tables speed`.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from experiments.provenance import RESULTS, provenance, write_result
from prenet_gnn import Predictor, Workload, list_hardware, load_predictor
from tracing import OpGraph, OpNode, Source, TensorSpec, trace, zoo

WORKLOAD = Workload(precision="amp_bf16")
DEVICE = "NVIDIA H100-SXM5-80GB"
# Commands whose start is timed; GRAPH stands for a file that `prenet trace` wrote.
COMMANDS = {
    "python -c 'import torch'": [sys.executable, "-c", "import torch"],
    "python -c 'import prenet_gnn'": [sys.executable, "-c", "import prenet_gnn"],
    **{
        f"prenet {words}": [sys.executable, "-m", "prenet_gnn", *words.split()]
        for words in (
            "--version",
            "--help",
            "hardware",
            "predict GRAPH",
            "compare GRAPH",
            "predict timm:resnet50",
        )
    },
}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        models: Name in the table, zoo spec, batch size and sequence length.
        repeats: Repetitions, of which the median counts.
        batch: Predictions in one call.
        lengths: Operators of the chains that show how the cost grows.
        commands: Names in `COMMANDS`.
    """

    models: tuple[tuple[str, str, int, int | None], ...]
    repeats: int
    batch: int
    lengths: tuple[int, ...]
    commands: tuple[str, ...]


FULL = Size(
    (
        ("ResNet-50", "timm:resnet50", 64, None),
        ("BERT-large", "transformers:bert-large-uncased", 16, 512),
        ("Llama-3-8B", "transformers:llama-3-8b", 1, 2048),
    ),
    7,
    1000,
    (100, 1_000, 10_000, 50_000),
    tuple(COMMANDS),
)
QUICK = Size(
    (("SqueezeNet", "torchvision:squeezenet1_1", 4, None),), 1, 20, (100, 400), tuple(COMMANDS)[:3]
)


def cpu_s(work: Callable[[], object]) -> float:
    """Seconds of the processor that some work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def chain(length: int) -> OpGraph:
    """Linear layers one after the other, no two of the same width, so that none is shared."""
    nodes = []
    for i in range(length):
        first = Source("node", i - 1) if i else Source("input", name="x")
        sources = (first, Source("param", name=f"{i}.weight"))
        specs = (TensorSpec((8, 64 + i)), TensorSpec((65 + i, 64 + i)))
        nodes.append(
            OpNode(
                i, f"linear_{i}", "aten.linear.default", "linear", str(i), sources,
                specs, (TensorSpec((8, 65 + i)),), {}, (bool(i), True), True,
            )
        )  # fmt: skip
    return OpGraph(tuple(nodes), batch_size=8)


def all_devices(predictor: Predictor, name: str, graph: OpGraph, repeats: int) -> dict[str, Any]:
    """One graph on every device: the first call on it, further calls, and one device alone."""
    devices = list_hardware()
    seconds = [cpu_s(lambda: predictor.predict_many(graph, devices, WORKLOAD))]
    seconds += [
        cpu_s(lambda: predictor.predict_many(graph, devices, WORKLOAD)) for _ in range(repeats)
    ]
    single = [cpu_s(lambda: predictor.predict(graph, DEVICE, WORKLOAD)) for _ in range(repeats)]
    again, one = statistics.median(seconds[1:]), statistics.median(single)
    return {
        "model": name,
        "operators": len(graph.nodes),
        "devices": len(devices),
        "first_s": seconds[0],
        "again_s": again,
        "one_device_s": one,
        "all_over_one": again / one,
    }


def batches(predictor: Predictor, name: str, graph: OpGraph, size: Size) -> dict[str, Any]:
    """Many predictions in one call: on one graph, on graphs never seen, and one after the other."""
    devices = list_hardware()
    mixed = [devices[i % len(devices)] for i in range(size.batch)]
    few = max(1, size.batch // 20)
    shared, apart, loop = [], [], []
    for _ in range(min(3, size.repeats)):
        shared.append(cpu_s(lambda: predictor.predict_many(graph, mixed, WORKLOAD)))
        copies = [graph.replace() for _ in range(few)]
        apart.append(cpu_s(lambda: predictor.predict_many(copies, mixed[:few], WORKLOAD)))  # noqa: B023
        loop.append(
            cpu_s(
                lambda: [
                    predictor.predict(graph.with_batch_size(1 + i), DEVICE, WORKLOAD)
                    for i in range(few)
                ]
            )
        )
    return {
        "model": name,
        "predictions": size.batch,
        "same_graph_per_s": size.batch / statistics.median(shared),
        "new_graphs_per_s": few / statistics.median(apart),
        "search_loop_per_s": few / statistics.median(loop),
    }


def growth(predictor: Predictor, size: Size) -> list[dict[str, Any]]:
    """Cost of the first prediction on chains, per operator."""
    found: list[dict[str, Any]] = []
    for length in size.lengths:
        graph = chain(length)
        seconds = statistics.median(
            cpu_s(lambda: predictor.predict(graph.replace(), DEVICE, WORKLOAD))  # noqa: B023
            for _ in range(min(3, size.repeats))
        )
        each = 1e6 * seconds / length
        first = found[0]["us_per_operator"] if found else each
        found.append({"operators": length, "us_per_operator": each, "over_shortest": each / first})
    return found


def child(words: Sequence[str]) -> float:
    """Seconds of the processor of a command.

    Its peak memory cannot be told: Linux counts what the starting process held before.

    Raises:
        RuntimeError: The command failed.
    """
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            out.seek(0)
            raise RuntimeError(f"{' '.join(words)} failed: {out.read()[-500:]}")
    return usage.ru_utime + usage.ru_stime


def starts(graph: OpGraph, size: Size) -> list[dict[str, Any]]:
    """What commands cost in a new process, beside a bare import of torch."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.json"
        graph.to_json(path)
        for name in size.commands:
            words = [str(path) if word == "GRAPH" else word for word in COMMANDS[name]]
            words += ["--hardware", DEVICE] if "predict" in words else []
            runs = [child(words) for _ in range(min(5, size.repeats))]
            seconds = statistics.median(runs)
            bare = found[0]["cpu_s"] if found else seconds
            found.append({"command": name, "cpu_s": seconds, "over_import_torch": seconds / bare})
    return found


def study(size: Size) -> dict[str, Any]:
    """All tables."""
    predictor = load_predictor()
    for graph in (chain(3), chain(2)):  # imports what a first prediction imports
        predictor.predict_many(graph, list_hardware(), WORKLOAD)
    graphs = {}
    for name, spec, batch_size, seq_len in size.models:
        model, args, kwargs = zoo.build(spec, batch_size=batch_size, seq_len=seq_len)
        graphs[name] = trace(model, args, kwargs)
    first_name, first = next(iter(graphs.items()))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {
        "all_devices": [all_devices(predictor, n, g, size.repeats) for n, g in graphs.items()],
        "batch": batches(predictor, first_name, first, size),
        "growth": growth(predictor, size),
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found["memory"] = {"before_bytes": before, "peak_bytes": peak, "longest": size.lengths[-1]}
    return found | {"starts": starts(first, size)}


def show(found: dict[str, Any]) -> None:
    """Prints the tables."""
    for row in found["all_devices"]:
        print(
            f"{row['model']}, {row['operators']} operators, on {row['devices']} devices: first "
            f"call {row['first_s']:.3f} s, then {row['again_s']:.3f} s; one device "
            f"{1e3 * row['one_device_s']:.1f} ms ({row['all_over_one']:.1f} times cheaper)"
        )
    row = found["batch"]
    print(
        f"{row['model']}, {row['predictions']} predictions in one call: "
        f"{row['same_graph_per_s']:.0f}/s on one graph, {row['new_graphs_per_s']:.0f}/s on graphs "
        f"never seen; one after the other with a new batch size: {row['search_loop_per_s']:.0f}/s"
    )
    for row in found["growth"]:
        print(
            f"chain of {row['operators']}: {row['us_per_operator']:.1f} microseconds per operator, "
            f"{row['over_shortest']:.2f} times the shortest chain's"
        )
    memory = found["memory"]
    print(
        f"peak memory {memory['peak_bytes'] / 2**20:.0f} MiB, before any prediction "
        f"{memory['before_bytes'] / 2**20:.0f} MiB"
    )
    for row in found["starts"]:
        print(
            f"{row['command']}: {row['cpu_s']:.2f} s, {row['over_import_torch']:.2f} of a bare "
            "import of torch"
        )


def main(words: Sequence[str] | None = None, folder: Path = RESULTS) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="also write results/speed.json")
    parser.add_argument("--quick", action="store_true", help="a small net, a smoke test")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    args = parser.parse_args(words)
    torch.set_num_threads(args.threads)
    found = study(QUICK if args.quick else FULL)
    show(found)
    if args.write:
        command = "python -m experiments.speed" + (" --quick" if args.quick else "")
        name = "speed-quick" if args.quick else "speed"
        settings = {"threads": args.threads, "device": DEVICE, "precision": WORKLOAD.precision}
        print(write_result(name, provenance(command, **settings) | found, folder))


if __name__ == "__main__":
    main()
