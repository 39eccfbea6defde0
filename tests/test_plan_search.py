"""Samplers, checkpointing, accumulation and several devices, on real graphs and real weights."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from prenet_gnn import Workload, get_hardware, load_predictor
from prenet_gnn.errors import ConfigError
from prenet_gnn.memory.peak import peak_memory
from prenet_gnn.planning import PlanError, PlanRequest, plan
from prenet_gnn.planning.checkpointing import checkpoint_regions, recompute_s, with_regions
from prenet_gnn.planning.parallel import BUCKET_BYTES, data_parallel, link_rate, pipeline_s
from prenet_gnn.planning.search import CHECKPOINTING_NOTE, PARALLEL_NOTE
from tracing import BATCH_MARKER, OpGraph, trace

T4, A100 = "Tesla T4", "NVIDIA A100-SXM4-80GB"
WIDTH, DEPTH = 1024, 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(x))).tanh()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.fixture(scope="module")
def predictor():
    return load_predictor()


@pytest.fixture(scope="module")
def marker() -> OpGraph:
    return trace(Net().to("meta"), (torch.zeros(BATCH_MARKER, WIDTH, device="meta"),))


def asked(**fields) -> PlanRequest:
    wanted = {"samples": 10**6, "devices": (T4, A100), "compiled": (False,), "objective": "cost"}
    return PlanRequest(**{**wanted, **fields})


def test_blocks_become_regions_and_save_memory(marker, predictor):
    regions = checkpoint_regions(marker)
    by_block = {}
    for node, region in zip(marker.nodes, regions, strict=True):
        by_block.setdefault(".".join(node.module.split(".")[:2]), set()).add(region)
    numbers = [by_block[f"layers.{i}"] for i in range(DEPTH)]
    assert all(len(found) == 1 and found != {0} for found in numbers)
    assert len(set.union(*numbers)) == DEPTH
    assert by_block["head"] == {0}
    plain = marker.with_batch_size(4096)
    saving = with_regions(plain, regions)
    assert peak_memory(saving, Workload()).activation_bytes < 0.5 * (
        peak_memory(plain, Workload()).activation_bytes
    )
    # the forward of the blocks once more, without what early stopping leaves out
    p = predictor.predict(saving, T4, Workload())
    blocks = sum(call.forward_s for call in p.calls if call.module.startswith("layers"))
    assert 0.6 * blocks < recompute_s(saving, p) <= blocks
    assert recompute_s(plain, predictor.predict(plain, T4, Workload())) == 0


class Checkpointed(Net):
    """The same network with every block checkpointed by PyTorch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x)


def test_the_rewrite_equals_a_model_that_checkpoints(marker):
    inputs = (torch.zeros(BATCH_MARKER, WIDTH, device="meta"),)
    real = trace(Checkpointed().to("meta"), inputs)
    assert len(real.nodes) == len(marker.nodes)
    assert any(node.region for node in real.nodes)
    ours = with_regions(marker, checkpoint_regions(marker))
    assert ours.saved_bytes == real.saved_bytes < marker.saved_bytes
    assert ours.recomputed_flops == real.recomputed_flops > 0


def test_nothing_repeats_nothing_is_checkpointed(marker):
    flat = trace(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), (torch.zeros(4, 8),))
    assert checkpoint_regions(flat) == ()
    assert checkpoint_regions(marker.replace(mode="infer")) == ()
    already = with_regions(marker, [1] * len(marker.nodes))
    assert checkpoint_regions(already) == ()


def test_the_grid_tries_everything_and_nsga2_comes_close(marker, predictor):
    sizes = (64, 256, 1024)
    fields = {"batch_sizes": sizes, "precisions": ("fp32", "amp_fp16")}
    whole = plan(marker, predictor, Workload(), asked(**fields))
    assert whole.sampler == "grid"
    assert whole.tried == len(sizes) * 2 * 2 * 2  # precisions, checkpointing, devices
    drawn = plan(marker, predictor, Workload(), asked(**fields, sampler="nsga2", trials=32))
    again = plan(marker, predictor, Workload(), asked(**fields, sampler="nsga2", trials=32))
    assert drawn.sampler == "nsga2"
    assert drawn.to_dict() == again.to_dict()
    assert drawn.tried <= whole.tried
    assert drawn.best.cost_usd <= 1.02 * whole.best.cost_usd
    without = plan(marker, predictor, Workload(), asked(**fields, sampler="none"))
    assert drawn.best.cost_usd <= without.best.cost_usd


def test_a_grid_that_is_too_large_is_refused(marker, predictor, monkeypatch):
    monkeypatch.setattr("prenet_gnn.planning.samplers.MOST_POINTS", 3)
    with pytest.raises(ConfigError, match="use the sampler nsga2"):
        plan(marker, predictor, Workload(), asked(sampler="grid", batch_sizes=(8, 16)))


def test_checkpointing_comes_in_where_memory_is_short(marker, predictor):
    small = replace(get_hardware(T4), name="Small", memory_bytes=3 * 2**30, confidence="user")
    fields = {"batch_sizes": (32768,), "precisions": ("fp32",), "sampler": "none"}
    fields |= {"objective": "time", "devices": (small,)}
    result = plan(marker, predictor, Workload(), asked(**fields))
    assert result.best.checkpointing
    assert CHECKPOINTING_NOTE in result.notes
    graph = marker.with_batch_size(32768)
    once = predictor.predict(graph, small, Workload()).seconds
    assert once * 1.1 < result.best.step_s < once * 1.5
    with pytest.raises(PlanError, match="memory binds"):
        plan(marker, predictor, Workload(), asked(**fields, checkpointing=(False,)))


def test_accumulation_keeps_the_global_batch_and_all_gradients(marker, predictor):
    fields = {"batch_sizes": (256,), "precisions": ("fp32",), "sampler": "none", "devices": (T4,)}
    fields |= {"checkpointing": (False,)}
    one = plan(marker, predictor, Workload(), asked(**fields)).best
    four = plan(marker, predictor, Workload(), asked(**fields, global_batch=1024)).best
    assert (four.batch_size, four.accumulation) == (256, 4)
    p = predictor.predict(marker.with_batch_size(256), T4, Workload())
    assert math.isclose(four.step_s, 4 * (p.seconds - p.optimizer_s) + p.optimizer_s, rel_tol=1e-6)
    assert one.peak_memory_bytes <= four.peak_memory_bytes
    gradients = sum(q.spec.bytes for q in marker.parameters if q.requires_grad)
    assert four.peak_memory_bytes <= one.peak_memory_bytes + 1.1 * gradients


def test_data_parallel_adds_what_backward_does_not_hide(marker, predictor):
    graph, device = marker.with_batch_size(256), get_hardware(A100)
    p = predictor.predict(graph, A100, Workload())
    alone, four = (data_parallel(graph, p, device, n) for n in (1, 4))
    assert alone.step_s == p.seconds
    assert alone.all_reduce_s == 0
    gradients = sum(q.spec.bytes for q in graph.parameters if q.requires_grad)
    assert four.gradient_bytes == gradients > BUCKET_BYTES
    rate, _ = link_rate(device, 4)
    assert four.all_reduce_s > 2 * 3 / 4 * gradients / rate
    assert 0 < four.exposed_s < four.all_reduce_s
    assert math.isclose(four.step_s, p.seconds + four.exposed_s)
    assert four.low_s <= p.low_s < p.high_s < four.high_s
    assert four.samples_per_s < 4 * p.samples_per_s
    slow = data_parallel(graph, p, replace(device, interconnect_bytes_per_s=None), 4)
    assert slow.link.startswith("PCIe")
    assert slow.exposed_s > four.exposed_s


def test_a_bridge_joins_two_cards_only():
    bridged = get_hardware("NVIDIA GeForce RTX 3090")
    assert "bridge" in bridged.interconnect
    assert link_rate(bridged, 2)[1] == bridged.interconnect.split(";")[0]
    assert link_rate(bridged, 4)[1].startswith("PCIe")
    with pytest.raises(ConfigError, match="no link"):
        link_rate(replace(bridged, interconnect_bytes_per_s=None, pcie_bytes_per_s=None), 2)


def test_a_pipeline_fills_up_with_micro_batches():
    assert pipeline_s(4.0, 4, 1) == 4.0
    assert pipeline_s(4.0, 4, 4) == 4.0 * 7 / 16
    assert math.isclose(pipeline_s(4.0, 4, 10**6), 1.0, rel_tol=1e-5)
    for devices, micro in ((0, 1), (99, 1), (4, 0)):
        with pytest.raises(ConfigError):
            pipeline_s(1.0, devices, micro)


def test_a_plan_for_a_node_counts_all_its_devices(marker, predictor):
    fields = {"batch_sizes": (256,), "precisions": ("fp32",), "sampler": "none", "devices": (A100,)}
    one = plan(marker, predictor, Workload(), asked(**fields)).best
    result = plan(marker, predictor, Workload(), asked(**fields, devices_per_node=4))
    four = result.best
    assert PARALLEL_NOTE in result.notes
    assert four.devices == 4
    assert one.total_s / 4 < four.total_s < one.total_s
    assert four.cost_usd > one.cost_usd
    with pytest.raises(ConfigError, match="does not divide"):
        plan(marker, predictor, Workload(), asked(**fields, devices_per_node=3, global_batch=256))
