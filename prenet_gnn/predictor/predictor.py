"""Predicts iterations with trained weights."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.catalogue.spec import Hardware
from prenet_gnn.encoding.batch import Sample, collate
from prenet_gnn.encoding.device import DEVICE, FORMATS, device_vector, format_of, run_vector
from prenet_gnn.encoding.encode import Encoded, encode
from prenet_gnn.encoding.template import Template, build_template, template_key
from prenet_gnn.errors import CheckpointError, ConfigError, PreNetError
from prenet_gnn.memory.iteration import Followed, follow, memory_key
from prenet_gnn.memory.peak import estimate, fits
from prenet_gnn.network.checkpoint import Checkpoint
from prenet_gnn.network.latents import device_key, framework_key, host_key
from prenet_gnn.predictor.outside import Seen, zone_of
from prenet_gnn.predictor.prediction import CallShare, Prediction
from prenet_gnn.predictor.questions import check_graph, check_workload
from prenet_gnn.workload.frameworks import computes_in_single
from prenet_gnn.workload.workload import Workload

if TYPE_CHECKING:
    from tracing import OpGraph

__all__ = ["Prediction", "Predictor"]

# Half-width of the interval, as a natural logarithm, when the weights name none.
DEFAULT_HALF_WIDTH = 0.3
# Half-width that a framework without a version adds: between two versions the logarithm of the time
# of one model on one card differs by 0.23 (root mean square; timm inference on an RTX 3090, PyTorch
# 1.10 to 2.4) to 0.27 (torchvision on an A100, 1.7 against 1.12); 90% lie within 1.645 of it.
UNKNOWN_FRAMEWORK_HALF_WIDTH = 1.645 * 0.27
# Number formats whose times are known poorly on all devices: held-out errors are about twice
# those of others (`experiments.outside`).
POORLY_KNOWN_FORMATS = {"fp64": "double precision", "half_plain": "half precision on plain lanes"}
# How much wider intervals are outside of what was seen, when the weights do not say.
OUTSIDE_FACTOR = 1.5
# Calls of one batch; more only costs memory.
CALLS_PER_BATCH = 40_000
# Where launching takes this share of the device's time, a warning says that the host decides.
HOST_SHARE = 0.9


class Predictor:
    """Trained networks with everything around them; safe to share between threads."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Takes what `load_checkpoint` read."""
        self.checkpoint = checkpoint
        self._seen = _seen(checkpoint)
        self._lock = threading.Lock()

    def predict(
        self,
        graph: OpGraph,
        hardware: str | Hardware = "",
        workload: Workload | None = None,
    ) -> Prediction:
        """Predicts one iteration.

        Args:
            graph: A traced model at the batch size in question.
            hardware: A device of the catalogue, by name or alias, or a device file.
            workload: How it is run; None is float32 training with AdamW.

        Raises:
            UnknownHardwareError: No device has that name.
            PreNetError: The graph holds nothing to predict.
        """
        return self.predict_many([graph], [hardware], [workload or Workload()])[0]

    def predict_many(
        self,
        graphs: OpGraph | Sequence[OpGraph],
        hardware: str | Hardware | Sequence[str | Hardware],
        workloads: Workload | Sequence[Workload] | None = None,
    ) -> list[Prediction]:
        """Predicts many iterations in batches.

        Args:
            graphs: One graph, or one for each prediction.
            hardware: One device, or one for each prediction.
            workloads: One workload, or one for each prediction.

        Returns:
            One prediction for each position of the longest argument.
        """
        listed = _aligned(graphs, hardware, workloads or Workload())
        for _, _, each in listed:
            check_workload(each)
        questions = [(g, _device(h), w) for g, h, w in listed]
        samples = [self._sample(*question) for question in questions]
        result: list[Prediction] = []
        start = 0
        while start < len(samples):
            end, calls = start, 0
            while end < len(samples) and (end == start or calls < CALLS_PER_BATCH):
                calls += len(samples[end].encoded.operators)
                end += 1
            result.extend(self._answer(questions[start:end], samples[start:end]))
            start = end
        return result

    def _sample(self, graph: OpGraph, hardware: Hardware, workload: Workload) -> Sample:
        single = computes_in_single(workload.framework_version)
        encoded = encoded_graph(graph, workload.precision, single)
        kind = format_of(hardware, workload.precision)
        latents = self.checkpoint.latents.indices(
            device_key(hardware.name, kind),
            host_key(hardware.name, workload),
            framework_key(workload),
        )
        device = device_vector(hardware, workload.precision)
        return Sample(encoded, device, run_vector(workload, hardware), workload, *latents)

    def _answer(
        self, questions: Sequence[tuple[OpGraph, Hardware, Workload]], samples: Sequence[Sample]
    ) -> list[Prediction]:
        data = collate(samples)
        with torch.inference_mode(), self._lock:
            times = [model(data) for model in self.checkpoint.models]
        logs = np.stack([t.total.clamp(min=1e-9).log().numpy() for t in times])
        totals, spread = np.exp(logs.mean(axis=0)), logs.std(axis=0)
        fields = ("forward", "backward", "optimizer", "device", "host", "loss", "zero_grad", "copy")
        parts = {n: np.mean([getattr(t, n).numpy() for t in times], axis=0) for n in fields}
        node = np.mean([t.node.numpy() for t in times], axis=0)
        starts = np.cumsum([0] + [len(s.encoded.operators) for s in samples])
        return [
            self._prediction(
                *question,
                samples[i],
                float(totals[i]),
                float(spread[i]),
                {name: float(values[i]) for name, values in parts.items()},
                node[starts[i] : starts[i + 1]],
            )
            for i, question in enumerate(questions)
        ]

    def _prediction(
        self,
        graph: OpGraph,
        hardware: Hardware,
        workload: Workload,
        sample: Sample,
        total: float,
        spread: float,
        parts: dict[str, float],
        node: np.ndarray,
    ) -> Prediction:
        chosen = set(workload.phases)
        forward = parts["forward"] * ("forward" in chosen) + parts["loss"] * ("loss" in chosen)
        backward = parts["backward"] * ("backward" in chosen)
        step = parts["optimizer"] * ("optimizer" in chosen)
        step += parts["zero_grad"] * ("zero_grad" in chosen)
        copy = parts["copy"] * ("h2d" in chosen)
        device_s = forward + backward + step
        scale = (total - copy) / device_s if device_s > 0 else 0.0
        outside = self._outside(graph, sample)
        warnings = (*outside, *self._warnings(graph, hardware, sample, parts))
        zone = "outside" if outside else self._zone(graph, sample)
        half = self._half_width(hardware, sample, spread, zone)
        followed = _followed(graph, workload)
        memory = estimate(followed, workload)
        return Prediction(
            seconds=total,
            low_s=total * math.exp(-half),
            high_s=total * math.exp(half),
            forward_s=forward * scale + copy,
            backward_s=backward * scale,
            optimizer_s=step * scale,
            peak_memory_bytes=int(memory.peak_memory_bytes),
            fits=fits(memory, hardware),
            hardware=hardware.name,
            workload=workload,
            model=str(graph.meta.get("model", "")),
            batch_size=graph.batch_size,
            device_s=device_s,
            host_s=parts["host"],
            warnings=warnings,
            memory={k: v for k, v in asdict(memory).items() if isinstance(v, int)},
            memory_moments=followed.moments,
            call_source=partial(_shares, graph, workload, node, scale),
        )

    def _is_timed(self, hardware: Hardware, sample: Sample) -> bool:
        """Whether training has seen whole iterations of this device in this number format."""
        timed = self.checkpoint.facts.get("timed")
        if timed is None:
            return sample.device_latent > 0
        number_format = format_of(hardware, sample.workload.precision)
        return device_key(hardware.name, number_format) in timed

    def _half_width(
        self, hardware: Hardware, sample: Sample, spread: float, zone: str | None
    ) -> float:
        known = "known_device" if self._is_timed(hardware, sample) else "new_device"
        mode = "train" if sample.workload.mode == "train" else "infer"
        intervals = self.checkpoint.intervals
        plain = intervals.get(f"{known}|{mode}", intervals.get(known, DEFAULT_HALF_WIDTH))
        if zone == "outside":
            plain = OUTSIDE_FACTOR * plain
        elif zone == "near":
            plain = intervals.get(f"{known}|{mode}|inside", plain)
        base = intervals.get(f"{known}|{mode}|{zone}", plain)
        workload = sample.workload
        unknown = not workload.framework or workload.framework_version is None
        version = UNKNOWN_FRAMEWORK_HALF_WIDTH if unknown else 0.0
        return math.hypot(base, 1.645 * spread, version)

    def _outside(self, graph: OpGraph, sample: Sample) -> tuple[str, ...]:
        """What of this question lies outside of what training has seen, the device apart."""
        if self._seen is None:
            return ()
        found = []
        number_format = FORMATS[int(sample.device[DEVICE.index("format")])]
        if number_format in POORLY_KNOWN_FORMATS:
            found.append(
                f"few measured times of {POORLY_KNOWN_FORMATS[number_format]} on any device, and "
                "they differ a lot"
            )
        distance = self._distance(graph, sample)
        if distance is not None and distance > 1.0:
            found.append(
                "this network is unlike those that the weights were trained on (distance "
                f"{distance:.1f}, most are within 1 of another family); the error can be twice the "
                "usual one"
            )
        return tuple(found)

    def _distance(self, graph: OpGraph, sample: Sample) -> float | None:
        """How far a graph is from those of training; None where the weights name none."""
        if self._seen is None:
            return None
        cache, key = _cache(graph), ("outside", sample.workload.precision)
        known = cache.get(key)
        if known is None or known[0] is not self._seen:
            known = cache[key] = (self._seen, self._seen.distance(sample.encoded))
        return float(known[1])

    def _zone(self, graph: OpGraph, sample: Sample) -> str | None:
        distance = self._distance(graph, sample)
        return None if distance is None else zone_of(distance)

    def _warnings(
        self, graph: OpGraph, hardware: Hardware, sample: Sample, parts: dict[str, float]
    ) -> tuple[str, ...]:
        found = []
        if not self._is_timed(hardware, sample):
            found.append(
                f"no measured times of {hardware.name} in this number format: predicted from its "
                "specifications; `prenet calibrate` narrows this"
            )
        if parts["host"] > HOST_SHARE * parts["device"]:
            found.append(
                "limited by how fast the host issues operators; a faster or slower CPU than usual "
                "changes this time"
            )
        if graph.unknown_ops:
            listed = ", ".join(sorted(graph.unknown_ops)[:4])
            found.append(f"operators without a cost formula, billed for memory traffic: {listed}")
        seen = self.checkpoint.facts.get("largest_log_seconds")
        if seen is not None and math.log(max(parts["device"], 1e-9)) > float(seen) + 0.7:
            found.append("longer than every iteration the weights were trained on")
        return tuple(found)


def _shares(
    graph: OpGraph, workload: Workload, node: np.ndarray, scale: float
) -> tuple[CallShare, ...]:
    single = computes_in_single(workload.framework_version)
    template = _template(graph, workload.precision, single)
    billed = template.members >= 0
    seconds = np.zeros((len(graph.nodes), 2))
    np.add.at(seconds, template.origins[billed], node[template.members[billed]] * scale)
    chosen = set(workload.phases)
    backward = float("backward" in chosen)
    shares = []
    for index in np.unique(template.origins[billed]):
        call = graph.nodes[index]
        forward = float(("loss" if call.kind == "loss" else "forward") in chosen)
        shares.append(
            CallShare(
                call.module,
                call.target,
                float(seconds[index, 0]) * forward,
                float(seconds[index, 1]) * backward,
                call.index,
            )
        )
    return tuple(shares)


def _seen(checkpoint: Checkpoint) -> Seen | None:
    """The graphs of training, where the weights name them."""
    data = checkpoint.facts.get("seen_graphs")
    if data is None:
        return None
    try:
        return Seen.from_dict(data)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the weights' list of graphs is damaged: {error}. Copy the weights again."
        ) from None


def _cache(graph: OpGraph) -> dict[Any, Any]:
    """A place at the graph for what is derived from it."""
    cache: dict[Any, Any] = graph.__dict__.setdefault("_encoded", {})
    return cache


def _followed(graph: OpGraph, workload: Workload) -> Followed:
    cache, key = _cache(graph), ("followed", memory_key(workload))
    if key not in cache:
        cache[key] = follow(graph, workload)
    followed: Followed = cache[key]
    return followed


def _template(graph: OpGraph, precision: str, single_attention: bool) -> Template:
    cache, key = _cache(graph), ("template", template_key(precision), single_attention)
    if key not in cache:
        cache[key] = build_template(graph, precision, single_attention=single_attention)
    template: Template = cache[key]
    return template


def encoded_graph(graph: OpGraph, precision: str, single_attention: bool = True) -> Encoded:
    """The graph's arrays under a precision, computed once per graph.

    Attention outside of fused kernels computes in float32, as it does in the present PyTorch,
    unless told otherwise.
    """
    check_graph(graph)
    cache, key = _cache(graph), ("encoded", precision, single_attention)
    if key not in cache:
        template = _template(graph, precision, single_attention)
        if not len(template.nodes):
            raise PreNetError(
                "the graph only makes views of its inputs: there is nothing to predict."
            )
        cache[key] = encode(template, graph.batch_size, precision)
    encoded: Encoded = cache[key]
    return encoded


def _device(hardware: str | Hardware) -> Hardware:
    return hardware if isinstance(hardware, Hardware) else get_hardware(hardware)


def _aligned(*columns: Any) -> list[tuple[Any, ...]]:
    lists = [list(c) if isinstance(c, list | tuple) else [c] for c in columns]
    length = max(len(values) for values in lists)
    if any(len(values) not in (1, length) for values in lists):
        sizes = ", ".join(str(len(values)) for values in lists)
        raise ConfigError(
            f"graphs, hardware and workloads are {sizes} long: give equal lengths, or one of each."
        )
    return list(zip(*(v * length if len(v) == 1 else v for v in lists), strict=True))
