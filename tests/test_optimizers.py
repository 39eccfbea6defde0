"""Optimizers: one table for what a step moves, launches and keeps."""

from __future__ import annotations

import importlib
import math

import pytest
import torch
from torch import nn

from prenet_gnn import load_predictor
from prenet_gnn.errors import ConfigError
from prenet_gnn.measuring import building
from prenet_gnn.memory.peak import peak_memory
from prenet_gnn.workload.optimizers import OPTIMIZERS, in_8_bits
from prenet_gnn.workload.workload import Workload
from tracing import OpGraph, trace, zoo

TRAINING = [name for name in OPTIMIZERS if name != "none"]
TENSORS = 62  # of ResNet-18
HERE = [name for name in TRAINING if not name.endswith("8bit")]


def small() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 10), nn.ReLU()
    )


@pytest.fixture(scope="module")
def graph() -> OpGraph:
    return trace(small().to("meta"), (torch.empty(4, 3, 8, 8, device="meta"),))


@pytest.fixture(scope="module")
def resnet() -> OpGraph:
    model, args, kwargs = zoo.build("torchvision:resnet18", batch_size=16)
    return trace(model, args, kwargs)


def state_bytes(name: str, dtype: torch.dtype = torch.float32) -> int:
    """What an optimizer keeps of a small network after a step here; scalars of the host are not."""
    model = small().to(dtype)
    stepper = building._optimizer(name, model)
    assert stepper is not None
    model(torch.rand(4, 3, 8, 8, dtype=dtype)).sum().backward()
    stepper.step()
    kept = [t for state in stepper.state.values() for t in state.values() if torch.is_tensor(t)]
    scalars = name.startswith("fused")
    return sum(t.numel() * t.element_size() for t in kept if scalars or t.dim())


@pytest.mark.parametrize("name", HERE)
def test_state_is_what_the_real_optimizer_keeps(name: str, graph: OpGraph) -> None:
    said = peak_memory(graph, Workload(optimizer=name), device="cpu").optimizer_bytes
    assert said == state_bytes(name)


@pytest.mark.parametrize("name", ["adam", "adafactor", "nadam"])
def test_state_has_the_format_of_the_weights(name: str, graph: OpGraph) -> None:
    half = Workload(optimizer=name, precision="bf16")
    said = peak_memory(graph, half, device="cpu").optimizer_bytes
    assert said == state_bytes(name, torch.bfloat16)


def test_factored_state_by_hand(graph: OpGraph) -> None:
    conv, linear, vectors = (8, 3, 3, 3), (10, 288), (8, 8, 8, 10)
    rows_and_columns = 8 * 3 * 3 + 8 * 3 * 3 + 10 + 288
    said = peak_memory(graph, Workload(optimizer="adafactor"), device="cpu")
    assert said.optimizer_bytes == 4 * (rows_and_columns + sum(vectors))
    assert graph.trainable_params == math.prod(conv) + math.prod(linear) + sum(vectors)


def test_states_of_8_bits_by_hand() -> None:
    """A byte a weight and a scale a block of 256; small tensors keep float32 whatever the model."""
    assert sum(in_8_bits((1024, 1024), 4, count=2)) == 2 * (2**20 + 4 * 4096)
    assert sum(in_8_bits((1024, 1024), 2, count=2)) == 2 * (2**20 + 4 * 4096)
    assert sum(in_8_bits((4097,), 4, count=2)) == 2 * (4097 + 4 * 17)
    assert sum(in_8_bits((4095,), 2, count=2)) == 2 * 4 * 4095


def test_memory_in_order(resnet: OpGraph) -> None:
    size = {n: peak_memory(resnet, Workload(optimizer=n)).optimizer_bytes for n in OPTIMIZERS}
    assert size["none"] == size["sgd"] == 0
    # rows and columns of a 3x3 convolution are two thirds of it
    assert 0 < size["adam8bit"] == size["adamw8bit"] < size["adafactor"] < size["sgd_momentum"]
    assert size["sgd_momentum"] == size["lion"] == size["rmsprop"] == size["adagrad"]
    assert size["adam"] == size["adamw"] == size["nadam"] == size["lamb"] == 2 * size["lion"]
    assert size["adam8bit"] < 0.3 * size["adam"]


@pytest.mark.parametrize("plain", ["sgd", "sgd_momentum", "adam", "adamw"])
@pytest.mark.parametrize("framework", ["torch-2.9.1", "torch-1.12"])
def test_fused_steps_are_not_slower_and_hold_nothing(
    plain: str, framework: str, resnet: OpGraph
) -> None:
    predictor = load_predictor()
    unfused, fused = (
        Workload(optimizer=name, framework=framework) for name in (plain, f"fused_{plain}")
    )
    for hardware in ("NVIDIA A100-SXM4-40GB", "NVIDIA GeForce RTX 3060"):
        times = [predictor.predict(resnet, hardware, w).optimizer_s for w in (unfused, fused)]
        assert 0 < times[1] <= times[0]
    held = [peak_memory(resnet, w).allocated_bytes for w in (unfused, fused)]
    # the count of steps of each tensor is a block of its own
    assert held[1] <= held[0] + 512 * TENSORS


def test_times_in_order(resnet: OpGraph) -> None:
    predictor, hardware = load_predictor(), "NVIDIA A100-SXM4-40GB"
    seconds = {
        name: predictor.predict(resnet, hardware, Workload(optimizer=name)).optimizer_s
        for name in TRAINING
    }
    assert seconds["sgd"] <= seconds["sgd_momentum"] <= seconds["adam"] <= seconds["adamw"]
    assert seconds["adam"] <= seconds["nadam"] <= seconds["lamb"]
    assert seconds["sgd_momentum"] <= seconds["lion"] <= seconds["adam"]
    # a loop over tensors, with two readings by the host each
    assert seconds["adafactor"] == max(seconds.values())


def test_8_bits_move_less(resnet: OpGraph) -> None:
    eight, full = OPTIMIZERS["adam8bit"], OPTIMIZERS["adam"]
    numel = resnet.trainable_params
    assert eight.moved_bytes(numel, 4) < 0.6 * full.moved_bytes(numel, 4)
    assert eight.moved_bytes(numel, 4) > OPTIMIZERS["sgd"].moved_bytes(numel, 4)


def test_every_optimizer_can_be_measured_or_says_what_it_needs() -> None:
    assert set(building.OPTIMIZER_CLASSES) == set(TRAINING)
    for name in set(TRAINING) - set(HERE):
        with pytest.raises(building.MeasureError, match="install bitsandbytes"):
            building._optimizer(name, small())


def test_unknown_names_get_one_line() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'adamw8bit'") as caught:
        Workload(optimizer="adamw_8bit")
    assert "\n" not in str(caught.value)


def held_in_a_step(name: str, grouped: bool, count: int) -> float:
    """Tensors that a real step holds beside weights, gradients and state, in units of a weight."""
    from torch.distributed._tools.mem_tracker import MemTracker

    module, kind, options = building.OPTIMIZER_CLASSES[name]
    weights = [nn.Parameter(torch.rand(64, 64)) for _ in range(count)]
    for weight in weights:
        weight.grad = torch.rand(64, 64)
    made = getattr(importlib.import_module(module), kind)
    stepper = made(weights, lr=1e-6, foreach=grouped, **options)
    tracker = MemTracker()
    tracker.track_external(stepper, *weights)
    with tracker:
        for _ in range(2):
            stepper.step()
    cpu = torch.device("cpu")
    peak, rest = (tracker.get_tracker_snapshot(when)[cpu]["Total"] for when in ("peak", "current"))
    return (peak - rest) / (4 * 64 * 64)


@pytest.mark.parametrize("name", ["sgd", "sgd_momentum", "adam", "adamw", *HERE[4:10]])
def test_temporaries_are_what_a_real_step_holds(name: str) -> None:
    said = OPTIMIZERS[name]
    if said.grouped == "foreach":
        assert held_in_a_step(name, True, 8) == pytest.approx(8 * said.temporaries, abs=0.5)
    assert held_in_a_step(name, False, 1) == pytest.approx(said.loop_temporaries, abs=0.5)
