"""How fast predictions are once a graph is traced, and what the command costs to start.

    python -m experiments.speed [--write] [--quick]

Seconds are those of the processor, added over threads, so that other load on the machine does not
count; rates are per second of one core. Commands run in processes of their own, each beside a bare
`import torch` of the same run. Time of a trace is in `experiments.tracing_tables speed`.
"""

from __future__ import annotations

import functools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from experiments.shared import markdown
from experiments.shared.command import QUICK, WRITE, Option, Options, command
from experiments.shared.graphs import chain
from experiments.shared.results import Result, folder_of, provenance, write_result
from experiments.shared.timing import MODELS, cpu_s, median_s
from prenet_gnn import Predictor, Workload, list_hardware, load_predictor
from tracing import OpGraph, trace, zoo

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
        models: Name in the table: zoo spec, batch size and sequence length.
        repeats: Repetitions, of which the median counts.
        batch: Predictions in one call.
        lengths: Operators of the chains that show how the cost grows.
        commands: Names in `COMMANDS`.
    """

    models: Mapping[str, tuple[str, int, int | None]]
    repeats: int
    batch: int
    lengths: tuple[int, ...]
    commands: tuple[str, ...]


FULL = Size(MODELS, 7, 1000, (100, 1_000, 10_000, 50_000), tuple(COMMANDS))
SMALL = Size(
    {"SqueezeNet": ("torchvision:squeezenet1_1", 4, None)}, 1, 20, (100, 400), tuple(COMMANDS)[:3]
)


def all_devices(predictor: Predictor, name: str, graph: OpGraph, repeats: int) -> Result:
    """One graph on every device: the first call on it, further calls, and one device alone."""
    devices = list_hardware()
    first = cpu_s(lambda: predictor.predict_many(graph, devices, WORKLOAD))
    again = median_s(lambda: predictor.predict_many(graph, devices, WORKLOAD), repeats)
    one = median_s(lambda: predictor.predict(graph, DEVICE, WORKLOAD), repeats)
    return {
        "model": name,
        "operators": len(graph.nodes),
        "devices": len(devices),
        "first_s": first,
        "again_s": again,
        "one_device_s": one,
        "all_over_one": again / one,
    }


def batches(predictor: Predictor, name: str, graph: OpGraph, size: Size) -> Result:
    """Many predictions in one call: on one graph, on graphs never seen, and one after the other."""
    devices = list_hardware()
    mixed = [devices[i % len(devices)] for i in range(size.batch)]
    few, repeats = max(1, size.batch // 20), min(3, size.repeats)
    copies = [[graph.replace() for _ in range(few)] for _ in range(repeats)]

    def one_by_one() -> None:
        for i in range(few):
            predictor.predict(graph.with_batch_size(1 + i), DEVICE, WORKLOAD)

    shared_s = median_s(lambda: predictor.predict_many(graph, mixed, WORKLOAD), repeats)
    apart_s = median_s(lambda: predictor.predict_many(copies.pop(), mixed[:few], WORKLOAD), repeats)
    return {
        "model": name,
        "predictions": size.batch,
        "same_graph_per_s": size.batch / shared_s,
        "new_graphs_per_s": few / apart_s,
        "search_loop_per_s": few / median_s(one_by_one, repeats),
    }


def growth(predictor: Predictor, size: Size) -> list[Result]:
    """Cost of the first prediction on chains, per operator."""
    found: list[Result] = []
    for length in size.lengths:
        graph = chain(length)
        ask = functools.partial(first_prediction, predictor, graph)
        each = 1e6 * median_s(ask, min(3, size.repeats)) / length
        first = found[0]["us_per_operator"] if found else each
        found.append({"operators": length, "us_per_operator": each, "over_shortest": each / first})
    return found


def first_prediction(predictor: Predictor, graph: OpGraph) -> None:
    """A prediction on a copy that no cache knows."""
    predictor.predict(graph.replace(), DEVICE, WORKLOAD)


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


def starts(graph: OpGraph, size: Size) -> list[Result]:
    """What commands cost in a new process, beside a bare import of torch."""
    found: list[Result] = []
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


def study(size: Size) -> Result:
    """All tables."""
    predictor = load_predictor()
    for graph in (chain(3), chain(2)):  # imports what a first prediction imports
        predictor.predict_many(graph, list_hardware(), WORKLOAD)
    graphs = {}
    for name, (spec, batch_size, seq_len) in size.models.items():
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


def table(result: Result) -> str:
    """What predictions cost, on all devices, in one call, on long graphs, and in new processes."""
    models = {
        "model": "{model}",
        "operators": "{operators}",
        "devices": "{devices}",
        "first call": "{first_s:.3f} s",
        "further calls": "{again_s:.3f} s",
        "one device": "{one_device_s:.4f} s",
        "all / one": "{all_over_one:.1f}",
    }
    batch = {
        "predictions": "{predictions}",
        "of one graph": "{same_graph_per_s:.0f}/s",
        "of new graphs": "{new_graphs_per_s:.0f}/s",
        "one by one with a new batch size": "{search_loop_per_s:.0f}/s",
    }
    chains = {
        "chain of": "{operators}",
        "each operator": "{us_per_operator:.1f} µs",
        "of the shortest chain's": "{over_shortest:.2f}",
    }
    commands = {
        "command": "`{command}`",
        "processor time": "{cpu_s:.2f} s",
        "of `import torch`": "{over_import_torch:.2f}",
    }
    text = "Peak memory {peak_bytes:.0f} MiB, before any prediction {before_bytes:.0f} MiB."
    memory = {name: value / 2**20 for name, value in result["memory"].items()}
    return markdown.signed(
        result,
        markdown.table(result["all_devices"], models),
        markdown.table([result["batch"]], batch),
        markdown.table(result["growth"], chains),
        text.format_map(memory),
        markdown.table(result["starts"], commands),
    )


@command(
    WRITE,
    QUICK,
    Option("--threads", type=int, default=1, help="threads of torch"),
)
def main(options: Options) -> None:
    """Times everything and prints it."""
    torch.set_num_threads(options.threads)
    found = study(SMALL if options.quick else FULL)
    settings = {"device": DEVICE, "precision": WORKLOAD.precision, "threads": options.threads}
    result = provenance(**settings) | found
    print(table(result))
    if options.write:
        print(write_result("speed", result, folder_of(options.quick)))


if __name__ == "__main__":
    main()
