"""Really runs a model on this machine and returns what one iteration takes."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import gc
import statistics
from typing import TYPE_CHECKING, Any

from prenet_gnn.data.records import MeasuredRecord
from prenet_gnn.errors import PreNetError
from prenet_gnn.measuring import facts, memory, timing
from prenet_gnn.measuring.building import Step, make_step, torch_settings
from prenet_gnn.measuring.devices import is_out_of_memory, resolve_device
from prenet_gnn.measuring.errors import MeasureError
from prenet_gnn.measuring.loss import tensors_in
from prenet_gnn.measuring.models import is_layer
from prenet_gnn.measuring.point import Effort, Point

if TYPE_CHECKING:
    import torch

# Iterations with marks between the phases, and with waits around them
PHASE_SAMPLES = 10
TOP_OPERATORS = 40


@functools.lru_cache(maxsize=8)
def _hardware(device: torch.device) -> tuple[str, dict[str, Any] | None]:
    """Catalogue name, or the device's own name with measured specifications."""
    from prenet_gnn.measuring.device_entry import detect

    name = facts.catalogue_name(facts.device_name(device), device.type)
    if name is not None:
        return name, None
    entry = detect(device)
    return str(entry["name"]), entry


def measure_model(
    point: Point, device: str | torch.device | None = None, effort: Effort | None = None
) -> MeasuredRecord:
    """Runs iterations of a model and returns their time, split and memory.

    Args:
        point: The model, its sizes and how to run it.
        device: `cpu`, `cuda`, `cuda:1`, `mps` or a `torch.device`; None takes an accelerator.
        effort: Time to spend, and what to look at besides time.

    Returns:
        The record; status `oom` where it did not fit.

    Raises:
        PreNetError: The device, the spec or a setting is wrong.
        MeasureError: The model stops with an error of its own.
    """
    place = resolve_device(device)
    effort = effort or Effort()
    with torch_settings(point.workload, effort.threads):
        base = base_record(point, place)
        try:
            return _measured(point, base, place, effort)
        except (Exception, SystemExit) as error:
            if is_out_of_memory(error):
                return dataclasses.replace(base, status="oom", error=_first_line(error))
            if isinstance(error, PreNetError) or _is_trace_error(error):
                raise
            raise MeasureError(f"{point.model} stopped: {_first_line(error)}") from error
        finally:
            _release(place, point.workload.compiled)


def base_record(point: Point, device: torch.device) -> MeasuredRecord:
    """A record of what is about to run, and where; it has no result yet."""
    import torch

    hardware, entry = _hardware(device)
    return MeasuredRecord(
        **point.identity(device.type, torch.get_num_threads()),
        framework="torch-" + torch.__version__.partition("+")[0],
        hardware=hardware,
        input_grad=point.workload.mode == "train" and is_layer(point.model),
        hardware_entry=entry,
        machine=facts.machine_facts(device),
        measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _measured(
    point: Point, base: MeasuredRecord, device: torch.device, effort: Effort
) -> MeasuredRecord:
    """Builds and runs; every name that holds tensors is local, so memory goes with the frame."""
    step = make_step(point, device)
    clock = timing.clock_for(device)
    found: dict[str, Any] = {
        "timed": step.timed,
        "param_bytes": memory.storage_bytes(step.model.parameters()),
    }
    if point.workload.mode == "train":
        # The eager model: a compiled one keeps its tensors in a place the hooks do not see
        eager = dataclasses.replace(step, runnable=None)
        found["saved_bytes"] = memory.saved_for_backward_bytes(step.model, eager.forward)
        del eager
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
    with timing.quiet_collector():
        found |= _times(step, clock, effort)
    if effort.memory:
        found |= _memory(step, device)
    if effort.profile:
        found["operators"] = _operators(step, device)
    return dataclasses.replace(base, **found)


def _times(step: Step, clock: timing.Clock, effort: Effort) -> dict[str, Any]:
    warmup = timing.warm_up(step, clock, effort.warmup_s)
    count = timing.sample_count(
        warmup.typical_s, effort.sample_s, effort.iterations, effort.min_samples
    )
    samples, busy = timing.sample(step, clock, count)
    spread = timing.summarize(samples)
    few = min(count, PHASE_SAMPLES)
    phases = {} if "+" not in step.timed else timing.sample_phases(step.phases, clock, few)
    found = {f"{name}_s": seconds for name, seconds in phases.items()}
    if not found:
        found = {"forward_s": spread.median_s}
    if clock.asynchronous:
        whole, issue = timing.sample_synced(step, clock, few)
        found |= {"synced_s": statistics.median(whole), "host_s": statistics.median(issue)}
    return found | {
        "seconds": spread.median_s,
        "mean_s": spread.mean_s,
        "std_s": spread.std_s,
        "p10_s": spread.p10_s,
        "p90_s": spread.p90_s,
        "samples_s": tuple(samples),
        "cpu_s": statistics.median(busy) if busy else None,
        "first_iteration_s": warmup.first_s,
        "warmup_iterations": warmup.iterations,
        "drift": spread.drift,
        "outliers": spread.outliers,
    }


def _memory(step: Step, device: torch.device) -> dict[str, int | None]:
    if device.type == "cuda":
        allocated, reserved, used = memory.cuda_memory_bytes(device)
        return {
            "peak_memory_bytes": allocated,
            "reserved_memory_bytes": reserved,
            "device_memory_bytes": used,
        }
    if device.type != "cpu":
        return {}
    step.zero_grad()
    resident = memory.storage_bytes(
        [
            *step.model.parameters(),
            *step.model.buffers(),
            *memory.optimizer_tensors(step.optimizer),
            *tensors_in((step.args, step.kwargs)),
            *step.gradients,
        ]
    )
    return {"peak_memory_bytes": memory.cpu_peak_bytes(step, resident)}


def _operators(step: Step, device: torch.device) -> tuple[tuple[str, float, int], ...]:
    """Own time of each operator, largest first; kernel time where kernels run on a device."""
    memory.quiet_profiler()
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        step()
        timing.clock_for(device).synchronize()
    # The profiler counts in microseconds
    own = "self_cpu_time_total" if device.type == "cpu" else "self_device_time_total"
    rows = [(e.key, float(getattr(e, own)) * 1e-6, int(e.count)) for e in profiler.key_averages()]
    rows = [row for row in rows if row[1] > 0]
    return tuple(sorted(rows, key=lambda row: -row[1])[:TOP_OPERATORS])


def _is_trace_error(error: BaseException) -> bool:
    from tracing.errors import TraceError

    return isinstance(error, TraceError)


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


def _release(device: torch.device, compiled: bool) -> None:
    """Gives memory back, so that one point does not make the next one fail."""
    import torch

    if compiled:
        torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
