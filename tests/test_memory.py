"""Peak memory against field reports, against PyTorch's own tracker, and by its parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from prenet_gnn import load_predictor
from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.memory.iteration import follow, memory_key
from prenet_gnn.memory.peak import ALLOWANCE, MIB, fits, peak_memory, usable_bytes
from prenet_gnn.workload.workload import Workload
from tracing import OpGraph, trace, zoo

WIDE = 4096
PARAMETERS = 50_343_936  # of three Linear(4096, 4096)


class Summed(nn.Module):
    """A stack that returns a sum as its loss."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.stack = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stack(x).sum()


class Repeated(nn.Module):
    """One layer that is called many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.linear, self.times = nn.Linear(1024, 1024), times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.times):
            x = self.linear(x)
        return x


def graph_of(model: nn.Module, *shape: int) -> OpGraph:
    return trace(model.to("meta"), (torch.empty(*shape, device="meta"),), loss="none")


def mlp() -> nn.Module:
    return Summed(*(layer for _ in range(3) for layer in (nn.Linear(WIDE, WIDE), nn.ReLU())))


@pytest.fixture(scope="module")
def wide() -> OpGraph:
    return graph_of(mlp(), 64, WIDE)


@pytest.fixture(scope="module")
def resnet() -> OpGraph:
    model, args, kwargs = zoo.build("torchvision:resnet50", batch_size=32)
    return trace(model, args, kwargs)


def workload(**options: Any) -> Workload:
    return Workload(**{"optimizer": "sgd", **options})


# --- values from the field


@pytest.mark.parametrize(
    ("options", "peak"),
    [
        ({"precision": "fp32"}, 405_897_224),
        ({"precision": "amp_bf16"}, 437_870_600),
        ({"optimizer": "adam"}, 941_834_268),
    ],
)
def test_wide_layers_match_the_tracker(wide: OpGraph, options: Any, peak: int) -> None:
    estimate = peak_memory(wide, workload(**options), device="cpu")
    assert estimate.allocated_bytes == pytest.approx(peak, rel=0.005)


def test_autocast_can_cost_more_memory_than_it_saves(wide: OpGraph) -> None:
    full = peak_memory(wide, workload(), device="cpu").allocated_bytes
    mixed = peak_memory(wide, workload(precision="amp_bf16"), device="cpu").allocated_bytes
    assert mixed / full == pytest.approx(1.079, abs=0.005)


def test_converted_weights_live_until_the_region_ends(wide: OpGraph) -> None:
    mixed = peak_memory(wide, workload(mode="infer", precision="amp_bf16"), device="cpu")
    assert mixed.temporary_bytes >= 3 * 2 * WIDE**2
    whole = peak_memory(wide, workload(mode="infer", precision="bf16"), device="cpu")
    assert whole.temporary_bytes == 0
    assert whole.weights_bytes == 2 * PARAMETERS


def test_adam_steps_on_all_tensors_or_one_at_a_time(wide: OpGraph) -> None:
    adam = peak_memory(wide, workload(optimizer="adamw"))
    tracked = 1_008_975_900
    assert adam.phase == "optimizer"
    assert adam.allocated_bytes - adam.workspace_bytes == pytest.approx(tracked, rel=0.005)
    assert adam.weights_bytes + adam.gradient_bytes + adam.optimizer_bytes == 16 * PARAMETERS
    assert adam.temporary_bytes == 4 * PARAMETERS
    old = peak_memory(wide, workload(optimizer="adamw", framework="torch-1.12"))
    assert old.temporary_bytes == 2 * 4 * WIDE**2


def test_a_layer_used_again_keeps_every_input() -> None:
    """One layer on one shape 100 times: the reported 4044.004 MiB of saved and live tensors."""
    graph = graph_of(Repeated(100), 10240, 1024)
    held = peak_memory(graph, workload(mode="train", optimizer="none"), device="cpu")
    forward = 100 * 10240 * 1024 * 4 + 10240 * 1024 * 4 + (1024**2 + 1024) * 4
    assert forward / MIB == pytest.approx(4044.004, abs=0.001)
    # the backward pass adds the gradient of the last output
    assert held.allocated_bytes == pytest.approx(forward, rel=0.025)
    assert held.allocated_bytes >= forward
    once = peak_memory(graph_of(Repeated(1), 10240, 1024), workload(), device="cpu")
    assert once.allocated_bytes < forward / 20


@pytest.mark.parametrize(("inplace", "tensors"), [(True, 1), (False, 2)])
def test_in_place_calls_make_no_memory(inplace: bool, tensors: int) -> None:
    graph = graph_of(nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(inplace)), 1, 3, 64, 64)
    estimate = peak_memory(graph, workload(mode="infer"), device="cpu")
    assert estimate.activation_bytes == tensors * 1_048_576 + 3 * 64 * 64 * 4


def test_frozen_weights_have_no_gradient_and_no_state() -> None:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(64, 64)
            self.down, self.up = nn.Linear(64, 4, bias=False), nn.Linear(4, 64, bias=False)
            self.base.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + self.up(self.down(x))

    graph = graph_of(nn.Sequential(Adapted(), Adapted()), 1, 64)
    adam = peak_memory(graph, workload(optimizer="adamw"), device="cpu")
    frozen, trained = 2 * (64 * 64 + 64), 2 * 2 * 4 * 64
    assert adam.weights_bytes == 4 * (frozen + trained)
    assert adam.optimizer_bytes == 8 * trained
    kept = adam.weights_bytes + adam.optimizer_bytes + 4 * trained
    assert kept == 4 * 9_344 + 12 * 1_024 == pytest.approx(49_152, rel=0.02)


def test_half_precision_weights_are_halved_once() -> None:
    graph = graph_of(nn.Linear(1000, 1000, bias=False), 1, 1000)
    for precision, size in (("fp32", 4), ("tf32", 4), ("fp16", 2), ("bf16", 2), ("fp64", 8)):
        estimate = peak_memory(graph, workload(mode="infer", precision=precision), device="cpu")
        assert estimate.weights_bytes == size * 10**6
    traced_in_half = trace(
        nn.Linear(1000, 1000, bias=False, device="meta", dtype=torch.bfloat16),
        (torch.empty(1, 1000, device="meta", dtype=torch.bfloat16),),
        loss="none",
    )
    half = peak_memory(traced_in_half, workload(mode="infer", precision="bf16"), device="cpu")
    assert half.weights_bytes == 2 * 10**6


def test_three_figures_are_told_apart(resnet: OpGraph) -> None:
    estimate = peak_memory(resnet, Workload())
    assert estimate.peak_memory_bytes == estimate.allocated_bytes
    assert estimate.allocated_bytes < estimate.reserved_bytes
    assert estimate.reserved_bytes % (2 * MIB) == 0
    assert estimate.device_bytes - estimate.reserved_bytes == ALLOWANCE.context_bytes
    assert estimate.allocated_bytes == (
        estimate.weights_bytes
        + estimate.gradient_bytes
        + estimate.optimizer_bytes
        + estimate.activation_bytes
        + estimate.temporary_bytes
        + estimate.workspace_bytes
    )
    old = peak_memory(resnet, Workload(framework="torch-1.12"))
    assert old.device_bytes - old.reserved_bytes == ALLOWANCE.eager_context_bytes


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_attention_kernel_decides(precision: str) -> None:
    class Attention(nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, q, q)

    q = torch.empty(1, 8, 8192, 64, device="meta", requires_grad=True)
    peaks = {}
    for backend in ("math", "flash"):
        graph = trace(Attention(), (q,), attention_backend=backend, loss="none")
        peaks[backend] = peak_memory(graph, workload(precision=precision)).activation_bytes
    scores = 8 * 8192**2 * (2 if precision == "bf16" else 4)
    assert scores == 1_073_741_824 * (1 if precision == "bf16" else 2)
    assert scores <= peaks["math"] - peaks["flash"] < 1.1 * scores


# --- PyTorch's tracker


def small_models() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    conv = [
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.GELU(), nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ]  # fmt: skip
    norm = [nn.Linear(256, 512), nn.LayerNorm(512), nn.GELU(), nn.Linear(512, 256), nn.Sigmoid()]
    silu = [nn.Conv2d(3, 48, 3), nn.SiLU(inplace=True), nn.Conv2d(48, 48, 3), nn.SiLU(inplace=True)]
    return {
        "convolutions": (Summed(*conv), (16, 3, 64, 64)),
        "norms": (Summed(*norm), (2048, 256)),
        "copies": (Summed(*silu), (8, 3, 48, 48)),
        "weights": (Summed(*(nn.Linear(1024, 1024) for _ in range(6))), (4, 1024)),
    }


def tracked_bytes(name: str, optimizer: str, mode: str) -> int:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    made = {
        "sgd_momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=False),
        "adam": lambda p: torch.optim.Adam(p, foreach=False),
    }
    with FakeTensorMode():
        model, shape = small_models()[name]
        x = torch.empty(shape)
        stepper = made[optimizer](model.parameters())
        tracker = MemTracker()
        tracker.track_external(model, stepper, x)
        with tracker, torch.set_grad_enabled(mode == "train"):
            for _ in range(2):
                loss = model(x)
                if mode == "train":
                    loss.backward()
                    stepper.step()
                    stepper.zero_grad()
                del loss
                tracker.reset_mod_stats()
        snapshot = tracker.get_tracker_snapshot("peak")
    return next(iter(snapshot.values()))["Total"]


@pytest.mark.parametrize("mode", ["train", "infer"])
@pytest.mark.parametrize("name", list(small_models()))
def test_peaks_match_the_tracker(name: str, mode: str) -> None:
    model, shape = small_models()[name]
    graph = graph_of(model, *shape)
    for optimizer in ("sgd_momentum", "adam") if mode == "train" else ("adam",):
        estimate = peak_memory(graph, workload(optimizer=optimizer, mode=mode), device="cpu")
        tracked = tracked_bytes(name, optimizer, mode)
        assert estimate.allocated_bytes == pytest.approx(tracked, rel=0.05), optimizer


# --- behaviour


def test_memory_grows_with_the_batch_and_shrinks_without_gradients(resnet: OpGraph) -> None:
    larger = peak_memory(resnet.with_batch_size(64), Workload())
    train, infer = (peak_memory(resnet, Workload(mode=mode)) for mode in ("train", "infer"))
    assert 1.7 < larger.activation_bytes / train.activation_bytes < 2.01
    assert infer.gradient_bytes == infer.optimizer_bytes == 0
    assert infer.activation_bytes < train.activation_bytes / 5


def test_old_frameworks_keep_gradients_through_the_forward_pass(resnet: OpGraph) -> None:
    new = peak_memory(resnet, workload())
    old = peak_memory(resnet, workload(framework="torch-1.12"))
    trained = 4 * resnet.trainable_params
    assert old.gradient_bytes == pytest.approx(trained, rel=0.01)
    assert new.gradient_bytes < trained / 2
    assert old.allocated_bytes > new.allocated_bytes


def test_optimizer_states(resnet: OpGraph) -> None:
    trained = 4 * resnet.trainable_params
    for optimizer, states in (("none", 0), ("sgd", 0), ("sgd_momentum", 1), ("adam", 2)):
        estimate = peak_memory(resnet, workload(optimizer=optimizer))
        assert estimate.optimizer_bytes == pytest.approx(states * trained, rel=0.01)


def test_a_graph_of_the_other_mode_is_rewritten(resnet: OpGraph) -> None:
    model, args, kwargs = zoo.build("torchvision:resnet50", batch_size=32, mode="infer")
    graph = trace(model, args, kwargs)
    train = peak_memory(graph, Workload(mode="train"))
    assert train.allocated_bytes == pytest.approx(
        peak_memory(resnet, Workload()).allocated_bytes, rel=0.02
    )


def test_the_verdict_counts_the_context_and_what_the_driver_keeps(resnet: OpGraph) -> None:
    device = get_hardware("NVIDIA GeForce RTX 3090")
    assert usable_bytes(device) / 2**30 == pytest.approx(23.70, abs=0.01)
    assert fits(peak_memory(resnet, Workload()), device)
    assert not fits(peak_memory(resnet.with_batch_size(1024), Workload()), device)


def test_workloads_of_one_key_have_the_same_tensors(resnet: OpGraph) -> None:
    plain = Workload(precision="fp16")
    for same in (
        Workload(precision="bf16", compiled=True, timed="forward"),
        Workload(precision="fp16", channels_last=True, cudnn_benchmark=False),
    ):
        assert memory_key(same) == memory_key(plain)
        assert follow(resnet, same) == follow(resnet, plain)
    assert memory_key(Workload(optimizer="sgd")) != memory_key(Workload())


def test_a_predictor_follows_a_graph_once(resnet: OpGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh, calls, predictor = resnet.replace(), [], load_predictor()
    monkeypatch.setattr(
        "prenet_gnn.predictor.predictor.follow", lambda *a: calls.append(a) or follow(*a)
    )
    for workload in (Workload(), Workload(compiled=True), Workload(precision="tf32")):
        predictor.predict(fresh, "Tesla T4", workload)
    assert len(calls) == 1
    predictor.predict(fresh, "Tesla T4", Workload(optimizer="sgd"))
    assert len(calls) == 2


def test_an_empty_model_is_its_batch() -> None:
    estimate = peak_memory(graph_of(nn.Identity(), 4, 8), workload(mode="infer"), device="cpu")
    assert estimate.weights_bytes == 0
    assert estimate.phase == "forward"
