"""Is time predicted where `torch.profiler` finds it? Shares by module and by kind of operator.

    python -m experiments.breakdown [--weights FOLDER] [--quick]

Runs models on one thread of this processor under the profiler and compares the share of each module
(two names deep) and of each kind of operator with the predicted share. Only the model's own calls
count: forward, and in training the backward pass, which the profiler ties to the forward call by
its sequence number. Loss and optimizer are left out on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from experiments.shared import markdown
from experiments.shared.command import QUICK, WEIGHTS, Options, command
from experiments.shared.results import Result, folder_of, provenance, write_result

if TYPE_CHECKING:
    from torch import nn

    from prenet_gnn.predictor.predictor import Predictor

HARDWARE = "AMD EPYC 7003 (1 core)"
MODELS = (
    "torchvision:resnet18",
    "torchvision:vgg11",
    "torchvision:densenet121",
    "torchvision:mobilenet_v2",
    "torchvision:squeezenet1_1",
    "torchvision:efficientnet_b0",
    "torchvision:shufflenet_v2_x1_0",
    "torchvision:regnet_y_400mf",
    "torchvision:googlenet",
    "timm:vit_tiny_patch16_224",
    "timm:deit_small_patch16_224",
    "timm:mixer_s32_224",
    "timm:convnext_atto",
    "timm:swin_tiny_patch4_window7_224",
)
MODES = ("infer", "train")
BATCH_SIZE = 4
DEPTH = 2
WARM_UP, PROFILED = 2, 3
MARK = "module:"
BACKWARD = "autograd::engine::evaluate_function: "
Shares = dict[str, float]


def cut(module: str) -> str:
    """A module's path, two names deep, as `Prediction.by_module` writes it."""
    return ".".join(module.split(".")[:DEPTH]) or "(root)"


@contextmanager
def marked(model: nn.Module) -> Iterator[None]:
    """While the block runs, the profiler sees which module a call belongs to."""
    from torch.profiler import record_function

    handles, open_marks = [], []

    def enter(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            mark = record_function(MARK + name)
            mark.__enter__()
            open_marks.append(mark)

        return hook

    def leave(*_: Any) -> None:
        open_marks.pop().__exit__(None, None, None)

    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(enter(name)))
        handles.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _home(event: Any) -> str | None:
    """The module that an event belongs to when nothing but marks lies around it."""
    parent = event.cpu_parent
    if parent is None or not parent.name.startswith(MARK):
        return None
    return str(parent.name[len(MARK) :])


def added(parts: Iterable[tuple[str, str, float]]) -> tuple[Shares, Shares]:
    """Times by module and by kind of operator, of calls with both."""
    by_module: Shares = {}
    by_kind: Shares = {}
    for module, kind, time in parts:
        by_module[module] = by_module.get(module, 0.0) + time
        by_kind[kind] = by_kind.get(kind, 0.0) + time
    return by_module, by_kind


def attributed(events: list[Any]) -> Iterator[tuple[str, str, float]]:
    """Module, kind and microseconds of every call of the model, forward and backward."""
    from tracing.costs.vocab import kind_of

    owner: dict[int, tuple[str, str]] = {}

    def own(event: Any, place: tuple[str, str]) -> None:
        if event.sequence_nr >= 0:
            owner.setdefault(event.sequence_nr, place)
        for child in event.cpu_children:
            own(child, place)

    for event in events:
        home = _home(event)
        if home is None or event.name.startswith(MARK):
            continue
        place = cut(home), kind_of(event.name.replace("::", "."))[0]
        own(event, place)
        yield *place, float(event.cpu_time_total)
    for event in events:
        if event.name.startswith(BACKWARD) and event.sequence_nr in owner:
            yield *owner[event.sequence_nr], float(event.cpu_time_total)


def measured(spec: str, mode: str) -> tuple[Shares, Shares]:
    """Shares by module and by kind in profiled iterations."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    from prenet_gnn.measuring import building, memory
    from prenet_gnn.workload.workload import Workload

    memory.quiet_profiler()
    torch.manual_seed(0)
    model, args, kwargs = building.build(spec, BATCH_SIZE, mode=mode, device="cpu")
    workload = Workload(mode=mode, optimizer="none")
    step = building.Step(model, args, kwargs, workload, "cpu", single_layer=False)
    for _ in range(WARM_UP):
        step()
    with marked(model), profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(PROFILED):
            step()
    return both_normal(attributed(list(profiler.events())))


def predicted(predictor: Predictor, spec: str, mode: str) -> tuple[Shares, Shares]:
    """Shares by module and by kind as predicted."""
    from prenet_gnn.measuring import building
    from prenet_gnn.workload.workload import Workload
    from tracing import trace

    model, args, kwargs = building.build(spec, BATCH_SIZE, mode=mode)
    graph = trace(model, args, kwargs)
    found = predictor.predict(graph, HARDWARE, Workload(mode=mode, optimizer="none"))
    calls = ((cut(call.module), graph.nodes[call.node].kind, call.seconds) for call in found.calls)
    return both_normal(call for call in calls if call[1] != "loss")


def both_normal(parts: Iterable[tuple[str, str, float]]) -> tuple[Shares, Shares]:
    """Shares by module and by kind."""
    by_module, by_kind = added(parts)
    return normal(by_module), normal(by_kind)


def normal(parts: Mapping[str, float]) -> Shares:
    """Parts that add up to one."""
    total = sum(parts.values())
    return {name: value / total for name, value in parts.items()} if total else {}


def compared(true: Shares, guess: Shares) -> dict[str, float]:
    """How well predicted shares follow measured ones."""
    names = sorted(set(true) | set(guess))
    first, second = (pd.Series([part.get(name, 0.0) for name in names]) for part in (true, guess))
    apart = (first - second).abs()
    correlation = first.rank().corr(second.rank()) if len(names) > 2 else np.nan
    return {
        "groups": len(names),
        "spearman": round(float(correlation), 4),
        "mean_difference": round(float(apart.mean()), 4),
        "misplaced": round(float(apart.sum() / 2), 4),
        "costliest_found": float(max(true, key=true.__getitem__) == max(guess, key=guess.get)),  # type: ignore[arg-type]
    }


def rows_of(predictor: Predictor, spec: str, mode: str) -> list[dict[str, Any]]:
    """Rows of one model: by module and by kind."""
    pairs = zip(measured(spec, mode), predicted(predictor, spec, mode), strict=True)
    return [
        {"model": spec, "mode": mode, "by": by, **compared(*pair)}
        for by, pair in zip(("module", "operator"), pairs, strict=True)
    ]


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over models, for each mode and way to group."""
    found = []
    for (mode, by), part in pd.DataFrame(rows).groupby(["mode", "by"]):
        means = part[["spearman", "mean_difference", "misplaced", "costliest_found"]].mean()
        found.append({"mode": mode, "by": by, "models": len(part), **means.round(4).to_dict()})
    return found


def table(result: Result) -> str:
    """Means over models of how shares agree."""
    columns = {
        "mode": "{mode}",
        "share by": "{by}",
        "models": "{models}",
        "rank correlation": "{spearman:.2f}",
        "mean difference": lambda row: f"{100 * row['mean_difference']:.1f} points",
        "misplaced time": "{misplaced:.1%}",
        "costliest found": "{costliest_found:.0%}",
    }
    return markdown.signed(result, markdown.table(result["means"], columns))


@command(WEIGHTS, QUICK)
def main(options: Options) -> None:
    """Profiles models and compares."""
    import torch

    from prenet_gnn.predictor.loading import load_predictor

    torch.set_num_threads(1)
    predictor = load_predictor(options.weights)
    rows: list[dict[str, Any]] = []
    for spec in MODELS[:1] if options.quick else MODELS:
        for mode in MODES:
            for row in rows_of(predictor, spec, mode):
                rows.append(row)
                print("  ".join(str(value) for value in row.values()), flush=True)
    facts = provenance("python -m experiments.breakdown", hardware=HARDWARE, batch_size=BATCH_SIZE)
    result = {**facts, "means": summary(rows)}
    print(table(result))
    path = write_result("breakdown", result, folder_of(options.quick))
    pd.DataFrame(rows).to_csv(path.with_suffix(".csv"), index=False)


if __name__ == "__main__":
    main()
