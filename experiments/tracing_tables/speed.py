"""Time of a trace against a forward pass on meta tensors, torch.export, and the size of the graph.

Times are those of the processor, not of the clock on the wall; every row runs in a new process.
"""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.shared.graphs import chain
from experiments.shared.ledger import Row
from experiments.shared.timing import cpu_s, median_s
from experiments.tracing_tables.common import Study
from tracing import OpGraph, trace, zoo
from tracing.costs.node import node_cost

# Name in the table: spec, batch size, sequence length, repetitions.
MODELS = {
    "ResNet-50": ("timm:resnet50", 64, None, 3),
    "ViT-B/16": ("timm:vit_base_patch16_224", 64, None, 3),
    "Llama-3-8B": ("transformers:llama-3-8b", 1, 4096, 3),
    "Llama-3-405B": ("transformers:llama-3-405b", 1, 4096, 1),
}
LENGTHS = (100, 1_000, 10_000, 50_000)


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class _Seen(TorchDispatchMode):
    """The least that a tool which counts operators does: see each of them."""

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _meta_forward(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with _Seen(), torch.no_grad():
        model(*args, **kwargs)


def compare(name: str) -> Row:
    """A model in bfloat16 where it is a language model, in float32 otherwise."""
    spec, batch, length, repeats = MODELS[name]
    torch.set_num_threads(1)
    model, args, kwargs = zoo.build(spec, batch_size=batch, seq_len=length, mode="train")
    if length:
        model = model.bfloat16()
    # the first call of each imports modules and fills caches
    small, image, _ = zoo.build("torchvision:squeezenet1_1", batch_size=2)
    torch.export.export(small, image, strict=False)
    trace(small, image)
    _meta_forward(small, image, {})
    before = _memory()
    traced = median_s(lambda: trace(model, args, kwargs), repeats)
    peak = _memory()
    try:
        forward = median_s(lambda: _meta_forward(model, args, kwargs), repeats)
    except RuntimeError:  # code that asks a tensor for its value has no meta forward
        forward = None
    exported = median_s(lambda: torch.export.export(model, args, kwargs, strict=False), repeats)
    graph = trace(model, args, kwargs)
    return {
        "nodes": len(graph.nodes),
        "meta_forward_s": round(forward, 3) if forward else "",
        "export_s": round(exported, 3),
        "trace_s": round(traced, 3),
        "trace_over_forward": round(traced / forward, 3) if forward else "",
        "trace_over_export": round(traced / exported, 3),
        "peak_bytes": peak,
        "before_bytes": before,
    }


def costs(name: str) -> Row:
    """Time per node of costs, saved bytes and JSON."""
    length = int(name.split()[-1])
    graph = chain(length, alike=True)
    seconds = min(cpu_s(lambda: [node_cost(node) for node in graph.nodes]) for _ in range(3))
    memory = cpu_s(lambda: graph.saved_bytes)
    written = cpu_s(lambda: OpGraph.from_json(graph.to_json()))
    return {
        "nodes": length,
        "cost_us_per_node": round(1e6 * seconds / length, 2),
        "saved_us_per_node": round(1e6 * memory / length, 2),
        "json_us_per_node": round(1e6 * written / length, 2),
    }


def row(name: str) -> Row:
    """One row in a process of its own, so that its memory is its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(compare if name in MODELS else costs, name).result()


def summary(table: list[Row]) -> list[str]:
    """Ratios, and cost per node of the shortest and the longest chain."""
    lines = [
        f"{row['model']}: trace / forward pass on meta tensors "
        f"{row['trace_over_forward'] or '(cannot run)'}, "
        f"/ torch.export {row['trace_over_export']}, {row['trace_s']} s, "
        f"{row['peak_bytes'] / 2**30:.2f} GiB"
        for row in table
        if row.get("trace_s") and not row["error"]
    ]
    chains = [row for row in table if row.get("cost_us_per_node") and not row["error"]]
    for row in chains[:1] + chains[-1:]:
        lines.append(f"{row['model']}: {row['cost_us_per_node']} microseconds per node")
    return lines


STUDY = Study(
    "speed",
    lambda: [*MODELS, *(f"chain of {length}" for length in LENGTHS)],
    row,
    summary,
    limit_s=3600,
)
