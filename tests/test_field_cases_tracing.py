"""What users of tracers ran into: memory, values in control flow, odd inputs, regions."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from field_models import Call, attention, forward_flops, linear, meta
from torch import nn

from tracing import TraceError, trace
from tracing.costs.timeline import activation_timeline

# --- packed weights, memory


def test_four_bit_weights_count_as_what_they_stand_for() -> None:
    model = Call(lambda self, x: x * self.lin.bias, lin=nn.Linear(100, 100))
    packed = nn.Parameter(torch.zeros(5000, 1, dtype=torch.uint8), requires_grad=False)
    packed.quant_state = SimpleNamespace(shape=torch.Size((100, 100)))  # type: ignore[attr-defined]
    model.lin.weight = packed
    graph = trace(model, (torch.zeros(2, 100),))
    assert graph.total_params == 10_100
    assert graph.total_param_bytes == 5000 + 400


def test_every_call_of_a_layer_keeps_its_own_activation() -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        for _ in range(100):
            x = self.linear(x)
        return x

    with torch.device("meta"):
        model = Call(run, linear=nn.Linear(1024, 1024))
    graph = trace(model, (torch.empty(10_240, 1024, device="meta"),), loss="none")
    timeline = activation_timeline(graph)
    produced = timeline.forward_peak_bytes + timeline.input_bytes + graph.total_param_bytes
    assert produced == 100 * 10_240 * 1024 * 4 + 10_240 * 1024 * 4 + (1024 * 1024 + 1024) * 4
    assert graph.total_params == 1024 * 1024 + 1024


@pytest.mark.parametrize(("inplace", "tensors"), [(True, 1), (False, 2)])
def test_in_place_calls_make_no_memory(inplace: bool, tensors: int) -> None:
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(inplace))
    graph = trace(model, (torch.zeros(1, 3, 64, 64),), loss="none")
    assert activation_timeline(graph).forward_peak_bytes == tensors * 1_048_576
    # either way one tensor is kept: the output of the activation (and the input image)
    assert graph.saved_bytes == 1_048_576 + 3 * 64 * 64 * 4


def test_math_attention_keeps_the_scores() -> None:
    q, k, v = (meta(1, 8, 8192, 64).bfloat16().requires_grad_() for _ in range(3))
    math = trace(attention(), (q, k, v), attention_backend="math", loss="none").saved_bytes
    flash = trace(attention(), (q, k, v), attention_backend="flash", loss="none").saved_bytes
    assert math - 3 * 8 * 8192 * 64 * 2 == 1_073_741_824
    assert flash == 4 * 8 * 8192 * 64 * 2 + 8 * 8192 * 4


# --- what Python does with values


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) if x.sum() > 0 else self.b(self.b(x))


class Steps(Branch):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(int(x.max().item())):
            x = self.a(x)
        return x


@pytest.mark.parametrize(
    ("model", "value", "calls"), [(Branch(), 1, "a"), (Branch(), -1, "bb"), (Steps(), 3, "aaa")]
)
def test_control_flow_on_values_is_run(model: nn.Module, value: int, calls: str) -> None:
    graph = trace(model, (torch.full((2, 8), float(value)),))
    assert "".join(n.module for n in graph if n.kind == "linear") == calls
    assert graph.total_flops == len(calls) * 2 * 2 * 8 * 8
    assert graph.meta["recorded_run"]
    assert graph.with_batch_size(6).total_flops == 3 * graph.total_flops


@pytest.mark.parametrize("backend", ["export", "record"])
@pytest.mark.parametrize("model", [Branch(), Steps()])
def test_control_flow_without_values_names_the_line(model: nn.Module, backend: str) -> None:
    model = model.to("meta")
    with pytest.raises(TraceError) as caught:
        trace(model, (meta(2, 8),), backend=backend)
    text = str(caught.value)
    assert "test_field_cases_tracing.py:" in text
    assert "values" in text
    assert "\n" not in text
    assert len(text) < 400


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("mask", [False, True])
def test_sizes_that_depend_on_values_count_as_an_upper_bound(
    mask: bool, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        chosen = x.sum(1) > 0
        return self.lin(x[chosen] if mask else x[chosen.nonzero().squeeze(1)])

    model = Call(run, lin=nn.Linear(8, 8)).to(device)
    graph = trace(model, (torch.randn(2, 8, device=device),))
    assert graph.total_flops == 256
    assert graph.meta["upper_bounds"]
    assert "upper bound" in caplog.text


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_packed_sequences_count_as_padded(
    layer: Any, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    def run(self: Any, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]

    model = Call(run, rnn=layer(8, 16, batch_first=True)).to(device)
    graph = trace(model, (torch.randn(2, 5, 8, device=device), torch.tensor([5, 3])))
    gates = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}[layer]
    assert graph.total_flops == gates * 30_720 // 4
    assert "packed sequences" in caplog.text


# --- inputs and outputs of any kind


@dataclass
class Output:
    logits: torch.Tensor
    extra: dict[str, Any]


@dataclass(frozen=True)
class Input:
    x: torch.Tensor
    scale: float = 2.0


class Cache:
    def __init__(self, keys: list[torch.Tensor]) -> None:
        self.keys = keys


@pytest.mark.parametrize(
    ("run", "args", "kwargs"),
    [
        (lambda s, d: {"y": s.lin(d["x"])}, ({"x": torch.zeros(2, 8)},), {}),
        (lambda s, *, x: s.lin(x), (), {"x": torch.zeros(2, 8)}),
        (lambda s, *x: [s.lin(x[0]), (x[1],)], (torch.zeros(2, 8), torch.zeros(2)), {}),
        (lambda s, x: Output(s.lin(x), {"a": None}), (torch.zeros(2, 8),), {}),
        (lambda s, i: s.lin(i.x) * i.scale, (Input(torch.zeros(2, 8)),), {}),
        (lambda s, c: Cache([s.lin(c.keys[0])]), (Cache([torch.zeros(2, 8)]),), {}),
        (lambda s, x: s.lin(x[0]["a"][1]), ([{"a": (None, torch.zeros(2, 8))}],), {}),
        (lambda s, x, flag=False: s.lin(x) if flag else x, (torch.zeros(2, 8), True), {}),
    ],
)
@pytest.mark.parametrize("backend", ["export", "record"])
def test_inputs_and_outputs_of_any_kind(run: Any, args: Any, kwargs: Any, backend: str) -> None:
    graph = trace(Call(run, lin=nn.Linear(8, 4)), args, kwargs, backend=backend)
    assert graph.total_flops == 128
    assert graph.total_params == 36
    assert graph.batch_size == 2
    assert len(set(graph.inputs)) == len(graph.inputs)


def test_lazy_layers_get_their_shapes_in_a_copy() -> None:
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyLinear(4))
    assert trace(model, (torch.zeros(2, 16),)).total_flops == 2 * 2 * (16 * 8 + 8 * 4)
    assert isinstance(model[0].weight, nn.UninitializedParameter)


# --- batch norm


def test_batch_norm_needs_two_samples_and_says_so() -> None:
    with pytest.raises(TraceError, match="Expected more than 1 value per channel"):
        trace(nn.BatchNorm1d(4).train(), (torch.zeros(1, 4),))


def test_batch_norm_costs_more_in_training() -> None:
    x = torch.empty(32, 64, 56, 56, device="meta")
    with torch.device("meta"):
        norm = nn.BatchNorm2d(64)
    train = trace(norm.train(), (x,), loss="none")
    infer = trace(norm.eval(), (x,), loss="none")
    elements = 6_422_528
    assert infer.total_elementwise_ops == 2 * elements
    assert train.total_elementwise_ops == pytest.approx(8 * elements, rel=0.01)
    assert train.nodes[-1].output.bytes == elements * 4 == 25_690_112


# --- regions, complex numbers, writing into tensors


@pytest.mark.parametrize("backend", ["export", "record"])
def test_a_region_without_gradients_has_no_backward(backend: str) -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = self.a(x)
        return self.b(x)

    model = Call(run, a=linear(8, 8), b=linear(8, 8))
    graph = trace(model, (torch.zeros(2, 8),), loss="none", backend=backend)
    assert (graph.total_flops, graph.total_backward_flops) == (512, 256)


@pytest.mark.parametrize("backend", ["export", "record"])
def test_autocast_regions_are_marked(backend: str) -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            x = self.a(x)
        return self.b(x.float())

    model = Call(run, a=linear(8, 8), b=linear(8, 8))
    graph = trace(model, (torch.zeros(2, 8),), backend=backend)
    assert {n.module: n.autocast for n in graph if n.kind == "linear"} == {"a": "bfloat16", "b": ""}
    assert graph.total_flops == 512


def test_complex_products_count_as_four_real_ones() -> None:
    model = Call(lambda _, a, b: torch.view_as_real(a @ b))
    a, b = torch.zeros(3, 4, dtype=torch.complex64), torch.zeros(4, 5, dtype=torch.complex64)
    assert forward_flops(model, a, b) == 4 * 2 * 3 * 4 * 5
    spectrum = Call(lambda _, x: torch.fft.irfft2(torch.fft.rfft2(x) * 2))
    graph = trace(spectrum, (torch.zeros(2, 3, 8, 8),))
    assert graph.unknown_ops == {}
    assert graph.total_elementwise_ops > 0


@pytest.mark.parametrize(
    ("equation", "shapes", "flops"),
    [
        ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5)), 2 * 2 * 3 * 4 * 5),
        ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5)), 2 * 2 * 3 * 4 * 5 * 6),
        ("...ij,jk->...ik", ((7, 3, 4), (4, 5)), 2 * 7 * 3 * 4 * 5),
        ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5)), 2 * (2 * 3 * 4 + 2 * 4 * 5)),
    ],
)
def test_einsum(equation: str, shapes: tuple[tuple[int, ...], ...], flops: int) -> None:
    model = Call(lambda _, *x: torch.einsum(equation, *x))
    assert forward_flops(model, *(torch.zeros(s) for s in shapes)) == flops


@pytest.mark.parametrize("backend", ["export", "record"])
def test_gradients_flow_through_what_is_written_in_place(backend: str) -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(2, 8)
        out[:, :4] = self.a(x)
        return self.b(out)

    model = Call(run, a=linear(8, 4), b=linear(8, 8).requires_grad_(False))
    graph = trace(model, (torch.zeros(2, 8),), loss="none", backend=backend)
    # b's input gradient and a's weight gradient
    assert graph.total_backward_flops == 2 * 2 * 8 * 8 + 2 * 2 * 8 * 4
