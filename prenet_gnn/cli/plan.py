"""`prenet plan`: the best device and settings for a whole training run."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from prenet_gnn.cli._options import (
    Devices,
    DevicesPerNode,
    Json,
    Model,
    PredictorOptions,
    Prices,
    ReportFile,
    ShapeOptions,
    parse_prices,
)
from prenet_gnn.common.units import SECONDS_PER_HOUR
from prenet_gnn.errors import ConfigError
from prenet_gnn.workload.optimizers import OPTIMIZERS
from prenet_gnn.workload.workload import DEFAULT_FRAMEWORK, MODES, Workload

if TYPE_CHECKING:
    from prenet_gnn.planning import Option, Plan, PlanRequest
    from prenet_gnn.predictor.interface import TimePredictor
    from prenet_gnn.reporting import Report
    from tracing import OpGraph

SHOWN_TRADE_OFFS = 8


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """What has to be done, what is made smallest, and within which limits."""

    samples: Annotated[int, typer.Option(help="Samples of one epoch.")]
    epochs: Annotated[int, typer.Option(help="Passes over the samples.")] = 1
    objective: Annotated[str, typer.Option(help="time | cost | energy")] = "time"
    budget: Annotated[float | None, typer.Option(help="Highest cost in US dollars.")] = None
    deadline: Annotated[float | None, typer.Option(help="Longest time in hours.")] = None
    global_batch: Annotated[
        int | None, typer.Option(help="Samples per optimizer step, by gradient accumulation.")
    ] = None

    @property
    def deadline_s(self) -> float | None:
        """The longest time in seconds."""
        return None if self.deadline is None else self.deadline * SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class TriedOptions:
    """What is searched, and how."""

    batch_size: Annotated[
        list[int] | None, typer.Option("--batch-size", "-b", help="Batch sizes to try; repeatable.")
    ] = None
    precision: Annotated[list[str] | None, typer.Option(help="Precisions to try; repeatable.")] = (
        None
    )
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Only or never torch.compile.")
    ] = None
    checkpointing: Annotated[
        bool | None,
        typer.Option("--checkpointing/--no-checkpointing", help="Only or never recompute blocks."),
    ] = None
    devices: Devices = None
    devices_per_node: DevicesPerNode = 1
    sampler: Annotated[str, typer.Option(help="auto | grid | nsga2 | none")] = "auto"
    trials: Annotated[int, typer.Option(help="Tries of nsga2.")] = 256
    seed: Annotated[int, typer.Option(help="Seed of the sampler.")] = 0
    price: Prices = None

    def request(self, goal: GoalOptions) -> "PlanRequest":
        """Gives the checked request."""
        from prenet_gnn.planning import PlanRequest

        return PlanRequest(
            samples=goal.samples,
            epochs=goal.epochs,
            objective=goal.objective,
            budget_usd=goal.budget,
            deadline_s=goal.deadline_s,
            global_batch=goal.global_batch,
            batch_sizes=tuple(self.batch_size or ()),
            precisions=tuple(self.precision or ()),
            compiled=_both_unless(self.compiled),
            checkpointing=_both_unless(self.checkpointing),
            devices=tuple(self.devices or ()),
            devices_per_node=self.devices_per_node,
            prices=parse_prices(self.price),
            sampler=self.sampler,
            trials=self.trials,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True)
class FixedOptions:
    """What is not searched."""

    mode: Annotated[str, typer.Option(help=" | ".join(MODES))] = "train"
    optimizer: Annotated[str, typer.Option(help=" | ".join(OPTIMIZERS))] = "adamw"
    framework: Annotated[str, typer.Option(help="PyTorch version.")] = DEFAULT_FRAMEWORK
    image_size: Annotated[int | None, typer.Option(help="Image height and width.")] = None
    seq_len: Annotated[int | None, typer.Option(help="Sequence length in tokens.")] = None

    def workload(self) -> Workload:
        """Gives the checked workload."""
        optimizer = self.optimizer if self.mode == "train" else "none"
        return Workload(mode=self.mode, optimizer=optimizer, framework=self.framework)

    def graph(self, model: str) -> "OpGraph":
        """Traces at the size from which every other batch size follows without a second trace."""
        from prenet_gnn.cli._graphs import graph_of
        from tracing import BATCH_MARKER, TraceError, zoo

        shape = ShapeOptions(BATCH_MARKER, self.image_size, self.seq_len)
        try:
            return graph_of(model, shape, self.workload())
        except (zoo.ZooError, ConfigError):
            raise
        except TraceError:
            return graph_of(model, replace(shape, batch_size=None), self.workload())


def plan(
    model: Model,
    source: PredictorOptions,
    goal: GoalOptions,
    tried: TriedOptions,
    fixed: FixedOptions,
    report: ReportFile = None,
    json: Json = False,
) -> None:
    """Finds device and settings for a whole run.

    Searches batch size, precision, layout, compilation, gradient accumulation and activation
    checkpointing on every device for the fastest, cheapest or thriftiest run within the limits, and
    says which limit binds.
    """
    from prenet_gnn import planning
    from prenet_gnn.cli._report import check_report
    from prenet_gnn.cli._text import emit, json_text

    request, workload = tried.request(goal), fixed.workload()
    check_report(report)
    graph = fixed.graph(model)
    predictor = source.load()
    result = planning.plan(graph, predictor, workload, request)
    if report is not None:
        from prenet_gnn.reporting import write_report

        write_report(report, _report(model, graph, result, predictor, workload))
    if json:
        head = {n: getattr(goal, n) for n in ("samples", "epochs", "objective")}
        emit(json_text({"model": model, **head, **result.to_dict()}), None)
    else:
        print(f"{model}: {goal.samples:,} samples x {goal.epochs} epochs, least {goal.objective}")
        _print(result)


def _both_unless(only: bool | None) -> tuple[bool, ...]:
    return (False, True) if only is None else (only,)


def _report(
    model: str,
    graph: "OpGraph",
    result: "Plan",
    predictor: "TimePredictor",
    workload: Workload,
) -> "Report":
    """The breakdown is one iteration of the best option."""
    from prenet_gnn.catalogue.devices import get_hardware
    from prenet_gnn.cli._report import facts_of
    from prenet_gnn.planning import compare
    from prenet_gnn.planning.checkpointing import checkpoint_regions, with_regions
    from prenet_gnn.reporting import Report

    best = result.best
    device = get_hardware(best.hardware)
    sized = graph.with_batch_size(best.batch_size)
    if best.checkpointing:
        sized = with_regions(sized, checkpoint_regions(graph))
    workload = replace(
        workload,
        precision=best.precision,
        channels_last=best.channels_last,
        compiled=best.compiled,
    )
    return Report(
        title=f"Plan for {model}: {best.device_text}",
        graph=sized,
        hardware=device,
        prediction=predictor.predict(sized, device, workload),
        comparison=compare(sized, predictor, workload),
        plan=result,
        inputs={"command": "plan", "model": model, "best": best.to_dict()},
        weights=facts_of(predictor),
    )


def _print(result: "Plan") -> None:
    from prenet_gnn.cli._text import print_table

    columns = ("", "device", "batch", "settings", "time", "90%", "USD", "90% ", "kWh", "memory")
    rows = [("best", *_cells(result.best))]
    rows += [("", *_cells(option)) for option in result.alternatives]
    print_table(columns, rows, text_columns=2)
    print("\nfaster or cheaper, never both:")
    rows = [("", *_cells(option)) for option in result.trade_off[:SHOWN_TRADE_OFFS]]
    print_table(columns, rows, text_columns=2)
    for note in (*result.binding, *result.notes):
        print(note)
    print(f"{result.tried:,} options predicted, chosen by the sampler '{result.sampler}'")


def _cells(option: "Option") -> tuple[str, ...]:
    from prenet_gnn.cli._text import bytes_text, time_text

    return (
        option.device_text,
        option.batch_text,
        option.settings,
        time_text(option.total_s),
        f"{time_text(option.total_low_s)} - {time_text(option.total_high_s)}",
        "" if option.cost_usd is None else f"{option.cost_usd:,.2f}",
        _cost_range(option),
        "" if option.energy_kwh is None else f"{option.energy_kwh:,.1f}",
        bytes_text(option.peak_memory_bytes),
    )


def _cost_range(option: "Option") -> str:
    low, high = option.cost_low_usd, option.cost_high_usd
    return "" if low is None or high is None else f"{low:,.2f} - {high:,.2f}"
