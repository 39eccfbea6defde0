"""Predicts iterations with trained weights."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.catalogue.spec import Hardware
from prenet_gnn.encoding.batch import collate, make_sample
from prenet_gnn.encoding.fields import NUMBER_FORMATS
from prenet_gnn.errors import CheckpointError
from prenet_gnn.memory.iteration import Followed, follow, memory_key
from prenet_gnn.memory.peak import estimate, fits
from prenet_gnn.network.checkpoint import Checkpoint
from prenet_gnn.network.interval import Situation
from prenet_gnn.network.readout import Times
from prenet_gnn.predictor.breakdown import Breakdown
from prenet_gnn.predictor.derived import DerivedGraphs
from prenet_gnn.predictor.outside import Seen, zone_of
from prenet_gnn.predictor.prediction import Prediction
from prenet_gnn.predictor.questions import Question, aligned, check_workload, in_batches
from prenet_gnn.workload.frameworks import computes_in_single
from prenet_gnn.workload.workload import Workload

if TYPE_CHECKING:
    from tracing import OpGraph

__all__ = ["Prediction", "Predictor"]

# Number formats whose times are known poorly on all devices: held-out errors are about twice
# those of others (`experiments.outside`).
POORLY_KNOWN_FORMATS = {"fp64": "double precision", "half_plain": "half precision on plain lanes"}
# Where launching takes this share of the device's time, a warning says that the host decides.
HOST_SHARE = 0.9
# A device's time that is longer than all of training by this much, as a logarithm, is warned of.
BEYOND_LONGEST = 0.7
SHORTEST_S = 1e-9


@dataclass(frozen=True, slots=True)
class Answer:
    """What the networks say of one row, averaged.

    Attributes:
        total_s: The phases asked for, together.
        spread: Standard deviation of its logarithm between the networks.
        parts: Seconds by phase, of the device and of the host, by their names in `Times`.
        node: Seconds of every distinct call, forward and backward `(U, 2)`.
    """

    total_s: float
    spread: float
    parts: dict[str, float]
    node: np.ndarray


class Predictor:
    """Trained networks with everything around them; safe to share between threads."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Takes what `load_checkpoint` read."""
        self.checkpoint = checkpoint
        self.graphs = DerivedGraphs()
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
        listed = aligned(graphs, hardware, workloads or Workload())
        for _, _, each in listed:
            check_workload(each)
        questions = [self._question(*each) for each in listed]
        return [
            self._prediction(question, answer)
            for part in in_batches(questions)
            for question, answer in zip(part, self._answers(part), strict=True)
        ]

    def _question(self, graph: OpGraph, device: str | Hardware, workload: Workload) -> Question:
        hardware = device if isinstance(device, Hardware) else get_hardware(device)
        single = computes_in_single(workload.framework_version)
        encoded = self.graphs.encoded(graph, workload.precision, single)
        sample = make_sample(encoded, hardware, workload, self.checkpoint.latents)
        return Question(graph, hardware, workload, sample)

    def _answers(self, questions: Sequence[Question]) -> list[Answer]:
        batch = collate([question.sample for question in questions])
        with torch.inference_mode(), self._lock:
            times: list[Times] = [model(batch) for model in self.checkpoint.models]
        logs = np.stack([t.total.clamp(min=SHORTEST_S).log().numpy() for t in times])
        totals, spread = np.exp(logs.mean(axis=0)), logs.std(axis=0)
        parts = {
            name: np.mean([getattr(t, name).numpy() for t in times], axis=0)
            for name in Times._fields
            if name not in ("total", "node")
        }
        node = np.mean([t.node.numpy() for t in times], axis=0)
        ends = np.cumsum([len(question.sample.encoded.operators) for question in questions])
        return [
            Answer(
                float(totals[i]),
                float(spread[i]),
                {name: float(values[i]) for name, values in parts.items()},
                own,
            )
            for i, own in enumerate(np.split(node, ends[:-1]))
        ]

    def _prediction(self, question: Question, answer: Answer) -> Prediction:
        graph, workload, parts = question.graph, question.workload, answer.parts
        timed = {name: seconds * (name in workload.phases) for name, seconds in parts.items()}
        forward, backward = timed["forward"] + timed["loss"], timed["backward"]
        step = timed["optimizer"] + timed["zero_grad"]
        copy = parts["copy"] * ("h2d" in workload.phases)
        device_s = forward + backward + step
        scale = (answer.total_s - copy) / device_s if device_s > 0 else 0.0
        outside = self._outside(question)
        half = self._half_width(question, answer.spread, "outside" if outside else None)
        followed = self._followed(graph, workload)
        memory = estimate(followed, workload)
        breakdown = Breakdown(graph, workload, answer.node, scale)
        single = computes_in_single(workload.framework_version)
        template = partial(self.graphs.template, graph, workload.precision, single)
        return Prediction(
            seconds=answer.total_s,
            low_s=answer.total_s * math.exp(-half),
            high_s=answer.total_s * math.exp(half),
            forward_s=forward * scale + copy,
            backward_s=backward * scale,
            optimizer_s=step * scale,
            peak_memory_bytes=int(memory.peak_memory_bytes),
            fits=fits(memory, question.hardware),
            hardware=question.hardware.name,
            workload=workload,
            model=str(graph.meta.get("model", "")),
            batch_size=graph.batch_size,
            device_s=device_s,
            host_s=parts["host"],
            warnings=(*outside, *self._warnings(question, parts)),
            memory={k: v for k, v in asdict(memory).items() if isinstance(v, int)},
            memory_moments=followed.moments,
            call_source=lambda: breakdown.shares(template()),
        )

    def _followed(self, graph: OpGraph, workload: Workload) -> Followed:
        key = ("followed", memory_key(workload))
        return self.graphs.keep(graph, key, lambda: follow(graph, workload))

    def _is_timed(self, question: Question) -> bool:
        """Whether training has seen whole iterations of this device in this number format."""
        timed = self.checkpoint.facts.timed
        known = self.checkpoint.latents.devices if timed is None else timed
        return question.device in known

    def _half_width(self, question: Question, spread: float, zone: str | None) -> float:
        if zone is None:
            distance = self._distance(question)
            zone = "" if distance is None else zone_of(distance)
        workload = question.workload
        situation = Situation(
            "known_device" if self._is_timed(question) else "new_device", workload.mode, zone
        )
        unknown = not workload.framework or workload.framework_version is None
        return self.checkpoint.intervals.half_width(situation, spread, unknown)

    def _outside(self, question: Question) -> tuple[str, ...]:
        """What of this question lies outside of what training has seen, the device apart."""
        distance = self._distance(question)
        if distance is None:
            return ()
        found = []
        number_format = NUMBER_FORMATS[question.sample.number_format]
        if number_format in POORLY_KNOWN_FORMATS:
            found.append(
                f"few measured times of {POORLY_KNOWN_FORMATS[number_format]} on any device, and "
                "they differ a lot"
            )
        if distance > 1.0:
            found.append(
                "this network is unlike those that the weights were trained on (distance "
                f"{distance:.1f}, most are within 1 of another family); the error can be twice the "
                "usual one"
            )
        return tuple(found)

    def _distance(self, question: Question) -> float | None:
        """How far a graph is from those of training; None where the weights name none."""
        seen, encoded = self._seen, question.sample.encoded
        if seen is None:
            return None
        key = ("distance", question.workload.precision)
        return self.graphs.keep(question.graph, key, lambda: seen.distance(encoded))

    def _warnings(self, question: Question, parts: dict[str, float]) -> Iterator[str]:
        if not self._is_timed(question):
            yield (
                f"no measured times of {question.hardware.name} in this number format: predicted "
                "from its specifications; `prenet calibrate` narrows this"
            )
        if parts["host"] > HOST_SHARE * parts["device"]:
            yield (
                "limited by how fast the host issues operators; a faster or slower CPU than usual "
                "changes this time"
            )
        if unknown := sorted(question.graph.unknown_ops):
            listed = ", ".join(unknown[:4])
            yield f"operators without a cost formula, billed for memory traffic: {listed}"
        longest = self.checkpoint.facts.largest_log_seconds
        device_s = max(parts["device"], SHORTEST_S)
        if longest is not None and math.log(device_s) > longest + BEYOND_LONGEST:
            yield "longer than every iteration the weights were trained on"


def _seen(checkpoint: Checkpoint) -> Seen | None:
    """The graphs of training, where the weights name them."""
    data = checkpoint.facts.seen_graphs
    if data is None:
        return None
    try:
        return Seen.from_dict(data)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the weights' list of graphs is damaged: {error}. Copy the weights again."
        ) from None
