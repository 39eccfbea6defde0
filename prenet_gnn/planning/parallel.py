"""A coarse outlook on one node with several equal devices: data parallel and pipeline.

Data parallel is what `DistributedDataParallel` does: every device runs the whole model on its own
batch, and the gradients are summed in buckets by a ring all-reduce while the backward pass goes on.

* A bucket of V bytes takes `2 (n - 1) / n x V / B + 2 (n - 1) x latency` on n devices (ring
  all-reduce; Patarasu and Yuan 2009), B being what a device sends per second.
* A bucket starts when the backward pass has made its gradients and the bucket before it is through.
* The step ends when both the backward pass and the last bucket are through; then the optimizer.

Pipeline cuts the model into n stages of equal time, as GPipe does: m micro-batches take
`(m + n - 1) / (m n)` of what one device takes for the whole batch; sending activations is left out.

Left out: kernels that slow each other down, waiting for the slowest device, the second node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from prenet_gnn.errors import ConfigError

if TYPE_CHECKING:
    from prenet_gnn.catalogue.devices import Hardware
    from prenet_gnn.predictor.prediction import Prediction
    from tracing import OpGraph

# `bucket_cap_mb` of DistributedDataParallel
BUCKET_BYTES = 25 * 2**20
# The first bucket is smaller, so that the sums start early (`kDefaultFirstBucketBytes`)
FIRST_BUCKET_BYTES = 2**20
# Share of a link's one-way rate that all-reduce reaches with large buckets: the published results
# of nccl-tests are 230 to 240 of 300 GB/s (A100, NVSwitch) and about 360 of 450 GB/s (H100).
LINK_SHARE = 0.78
# Through the host the path is shared by the devices and copied twice.
HOST_SHARE = 0.4
# One step of the ring: a kernel and a transfer of nothing.
STEP_LATENCY_S = 8e-6
MOST_DEVICES = 16


@dataclass(frozen=True, slots=True)
class Outlook:
    """A coarse answer for several devices of one node.

    Attributes:
        devices: Devices of the node.
        global_batch: Samples per step over all devices.
        step_s: Time of one step.
        low_s: The interval's lower end for one device, with the sums hidden completely.
        high_s: The interval's upper end for one device, with no sum hidden.
        samples_per_s: Samples of all devices.
        efficiency: Throughput over that of as many devices without communication.
        gradient_bytes: What is summed in every step.
        all_reduce_s: Time of the sums alone.
        exposed_s: Part of it that the backward pass does not hide.
        link_bytes_per_s: One-way rate that is reckoned with.
        link: Which link that is.
    """

    devices: int
    global_batch: int
    step_s: float
    low_s: float
    high_s: float
    samples_per_s: float
    efficiency: float
    gradient_bytes: int
    all_reduce_s: float
    exposed_s: float
    link_bytes_per_s: float
    link: str

    def to_dict(self) -> dict[str, Any]:
        """Gives plain values, ready for JSON."""
        return asdict(self)


def data_parallel(
    graph: OpGraph, prediction: Prediction, hardware: Hardware, devices: int
) -> Outlook:
    """Reckons one data-parallel step; the prediction's batch is that of one device."""
    check_devices(devices)
    rate, link = link_rate(hardware, devices)
    buckets = _buckets(graph, prediction) if devices > 1 else []
    seconds = [_all_reduce_s(size, rate, devices) for _, size in buckets]
    alone = sum(seconds)
    end = 0.0
    for (ready, _), took in zip(buckets, seconds, strict=True):
        end = max(end, ready) + took
    exposed = max(0.0, end - prediction.backward_s)
    step = prediction.seconds + exposed
    return Outlook(
        devices=devices,
        global_batch=prediction.batch_size * devices,
        step_s=step,
        low_s=prediction.low_s,
        high_s=prediction.high_s + alone,
        samples_per_s=devices * prediction.batch_size / step,
        efficiency=prediction.seconds / step,
        gradient_bytes=sum(size for _, size in buckets),
        all_reduce_s=alone,
        exposed_s=exposed,
        link_bytes_per_s=rate,
        link=link,
    )


def pipeline_s(whole_batch_s: float, devices: int, micro_batches: int) -> float:
    """Forward and backward time of a pipeline, from the time of one device for the whole batch."""
    check_devices(devices)
    if micro_batches < 1:
        raise ConfigError(f"micro-batches must be one or more, not {micro_batches}.")
    return whole_batch_s * (micro_batches + devices - 1) / (micro_batches * devices)


def check_devices(devices: int) -> int:
    """Refuses numbers of devices that no node has."""
    if not 1 <= devices <= MOST_DEVICES:
        raise ConfigError(
            f"devices per node must be between 1 and {MOST_DEVICES}, not {devices}: "
            "the outlook knows one node only."
        )
    return devices


def link_rate(hardware: Hardware, devices: int) -> tuple[float, str]:
    """One-way rate in bytes per second that a ring all-reduce reaches, and the link's name."""
    direct = hardware.interconnect_bytes_per_s
    # A bridge joins two cards; a ring through more goes over the host as well.
    bridge = "bridge" in hardware.interconnect.lower()
    if direct and (not bridge or devices == 2):
        return direct / 2 * LINK_SHARE, hardware.interconnect.split(";")[0]
    if hardware.pcie_bytes_per_s:
        return hardware.pcie_bytes_per_s * HOST_SHARE, "PCIe through the host"
    raise ConfigError(
        f"no link between devices is known for {hardware.name}; a device file with "
        "pcie_bytes_per_s or interconnect_bytes_per_s gives one."
    )


def _all_reduce_s(size_bytes: float, rate: float, devices: int) -> float:
    return 2 * (devices - 1) / devices * size_bytes / rate + 2 * (devices - 1) * STEP_LATENCY_S


def _buckets(graph: OpGraph, prediction: Prediction) -> list[tuple[float, int]]:
    """When each bucket is full, counted from the start of the backward pass, and its bytes."""
    buckets: list[tuple[float, int]] = []
    held = 0
    for ready, size in _gradients(graph, prediction):
        held += size
        if held >= (BUCKET_BYTES if buckets else FIRST_BUCKET_BYTES):
            buckets.append((ready, held))
            held = 0
    if held:
        buckets.append((prediction.backward_s, held))
    return buckets


def _gradients(graph: OpGraph, prediction: Prediction) -> Sequence[tuple[float, int]]:
    """Gradients in the order they are made: when, and how many bytes.

    A weight that several calls share is complete with the last of them, the first of the forward.
    """
    from prenet_gnn.encoding.precision import FULL_BYTES, SINGLE, policy

    precision = prediction.workload.precision
    single = SINGLE if policy(precision) == "amp" else FULL_BYTES[precision]
    sizes = {
        p.name: p.spec.bytes * single // SINGLE if p.spec.dtype == "float32" else p.spec.bytes
        for p in graph.parameters
        if p.unique and p.requires_grad and not p.is_buffer
    }
    first: dict[int, int] = {}
    seen: set[str] = set()
    for node in graph.nodes:
        new = [name for name in node.params if name in sizes and name not in seen]
        seen.update(new)
        first[node.index] = sum(sizes[name] for name in new)
    backward = {call.node: call.backward_s for call in prediction.calls}
    clock, found = 0.0, []
    for node in reversed(graph.nodes):
        clock += backward.get(node.index, 0.0)
        if first[node.index]:
            found.append((min(clock, prediction.backward_s), first[node.index]))
    return found
