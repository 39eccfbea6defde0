"""What users of FLOP counters and tracers ran into, each with the value that is right."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest
import torch
from field_models import Call, attention, forward_flops, linear, meta
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tracing import TraceError, UnsupportedOpError, register_cost, trace
from tracing.costs.formulas import COSTS


def training_flops(model: nn.Module, *args: Any, **options: Any) -> int:
    graph = trace(model, args, loss="none", **options)
    return graph.total_flops + graph.total_backward_flops


# --- attention


def test_fused_attention_counts_and_grows_with_the_square() -> None:
    q = meta(1, 12, 64, 64)
    assert forward_flops(attention(), q, q, q) == 12_582_912
    longer = meta(1, 12, 128, 64)
    assert forward_flops(attention(), longer, longer, longer) == 4 * 12_582_912
    real = torch.zeros(1, 12, 64, 64)
    assert forward_flops(attention(), real, real, real) == 12_582_912


@pytest.mark.parametrize(("backend", "total"), [("math", 37_748_736), ("flash", 44_040_192)])
def test_attention_training_depends_on_the_kernel(backend: str, total: int) -> None:
    q, k, v = (meta(1, 12, 64, 64, grad=True) for _ in range(3))
    assert training_flops(attention(), q, k, v, attention_backend=backend) == total


def test_grouped_query_attention_counts_query_heads() -> None:
    q, kv = meta(1, 8, 128, 64), meta(1, 2, 128, 64)
    assert forward_flops(attention(enable_gqa=True), q, kv, kv) == 33_554_432

    def block(self: Any, x: torch.Tensor) -> torch.Tensor:
        q = self.q(x).view(1, 128, 8, 64).transpose(1, 2)
        k, v = (p(x).view(1, 128, 2, 64).transpose(1, 2) for p in (self.k, self.v))
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    model = Call(block, q=linear(512, 512), k=linear(512, 128), v=linear(512, 128))
    assert forward_flops(model, torch.zeros(1, 128, 512)) == 134_217_728


@pytest.mark.parametrize(
    ("width", "heads", "length", "macs"),
    [(100, 1, 1000, 240_000_000), (448, 4, 300, 321_484_800), (448, 8, 300, 321_484_800)],
)
def test_multi_head_attention(width: int, heads: int, length: int, macs: int) -> None:
    model = nn.MultiheadAttention(width, heads, batch_first=True)
    x = torch.empty(1, length, width)
    graph = trace(model, (x, x, x))
    assert graph.total_flops == 2 * macs
    assert graph.total_params == 4 * width**2 + 4 * width


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_encoder_layer_without_the_fused_path(training: bool, frozen: bool) -> None:
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).train(training)
    model.requires_grad_(not frozen)
    with torch.no_grad():
        for backend in ("export", "record"):
            graph = trace(model, (torch.randn(2, 5, 16),), backend=backend)
            assert graph.total_flops == 44_160
    assert torch.backends.mha.get_fastpath_enabled()


def test_causal_attention_is_billed_as_the_full_square_and_says_that_it_is_causal() -> None:
    q = meta(1, 12, 64, 64)
    graph = trace(attention(is_causal=True), (q, q, q))
    assert graph.total_flops == 12_582_912
    assert [n.attrs["is_causal"] for n in graph if n.kind == "attention"] == [True]
    assert "full square" in (trace.__doc__ or "")


# --- convolution, linear, recurrent, embedding


def test_depthwise_weight_gradient_is_divided_by_groups() -> None:
    conv = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
    assert training_flops(conv, torch.randn(1, 8, 16, 16)) == 73_728


@pytest.mark.parametrize(
    ("model", "shape", "macs"),
    [
        (nn.Conv2d(1, 128, 3), (1, 1, 128, 128), 18_289_152),
        (nn.Conv2d(16, 16, 3, dilation=2, padding=2), (1, 16, 32, 32), 2_359_296),
        (nn.Conv3d(4, 8, 3, padding=1), (1, 4, 8, 16, 16), 1_769_472),
        (nn.Conv1d(4, 8, 3), (2, 4, 10), 2 * 8 * 8 * 4 * 3),
        (nn.ConvTranspose2d(4, 8, 2, stride=2), (1, 4, 5, 5), 25 * 4 * 8 * 4),
        (nn.Linear(64, 256), (1, 22_528, 64), 369_098_752),
    ],
)
def test_multiply_accumulates(model: nn.Module, shape: tuple[int, ...], macs: int) -> None:
    assert forward_flops(model, torch.empty(shape)) == 2 * macs


def test_lstm_and_gru() -> None:
    lstm = trace(nn.LSTM(12, 128, batch_first=True), (torch.randn(1, 250, 12),))
    assert lstm.total_flops == 35_840_000
    assert lstm.total_params == 72_704
    assert lstm.total_flops + lstm.total_backward_flops == 104_316_928
    gru = trace(nn.GRU(128, 128), (torch.randn(32, 10, 128),))
    assert gru.total_flops == 62_914_560
    assert gru.total_params == 99_072


def tied() -> nn.Module:
    model = Call(lambda self, x: self.h(self.e(x)), e=nn.Embedding(1000, 64), h=linear(64, 1000))
    model.h.weight = model.e.weight
    return model


def test_embedding_lookup_is_free_and_a_tied_head_is_not() -> None:
    graph = trace(tied(), (torch.zeros(1, 32, dtype=torch.int64),))
    assert graph.total_flops == 4_096_000
    assert graph.total_params == 64_000
    lookup = next(
        cost for n, cost in zip(graph, graph.node_costs, strict=True) if n.kind == "embedding"
    )
    assert lookup.forward_flops == 0
    assert lookup.forward_bytes >= 2 * 32 * 64 * 4


@pytest.mark.parametrize("backend", ["export", "record"])
def test_tied_weights_stay_tied(backend: str) -> None:
    with torch.device("meta"):
        model = tied()
    x = torch.zeros(1, 32, dtype=torch.int64)
    assert trace(model, (x.to("meta"),), backend=backend).total_params == 64_000
    real = tied()
    assert trace(real, (x,), backend=backend).total_params == 64_000
    assert real.h.weight is real.e.weight


def test_three_places_of_one_layer() -> None:
    layer = nn.Linear(10, 10)
    graph = trace(nn.Sequential(nn.Sequential(layer), nn.Sequential(layer)), (torch.zeros(1, 10),))
    assert (graph.total_flops, graph.total_params) == (400, 110)
    shared = linear(1000, 1000)
    graph = trace(nn.Sequential(shared, shared), (torch.empty(1, 20, 1000),))
    assert (graph.total_flops, graph.total_params) == (80_000_000, 1_000_000)


def test_a_parameter_without_use_still_counts() -> None:
    model = Call(lambda self, x: self.a(x), a=linear(4, 4), unused=linear(8, 8))
    assert trace(model, (torch.zeros(2, 4),)).total_params == 16 + 64


# --- custom operators


@torch.library.custom_op("prenet_test::mm", mutates_args=())
def custom_mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


@custom_mm.register_fake
def _(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.new_empty(a.shape[0], b.shape[1])


def test_a_custom_operator_is_named_and_can_be_given_a_formula(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, args = Call(lambda _, a, b: custom_mm(a, b)), (torch.zeros(4, 8), torch.zeros(8, 2))
    with caplog.at_level(logging.WARNING, logger="tracing"):
        graph = trace(model, args, loss="none")
    assert graph.unknown_ops == {"prenet_test.mm.default": 1}
    assert [r for r in caplog.messages if "prenet_test.mm" in r] == caplog.messages
    assert len(caplog.messages) == 1
    with pytest.raises(UnsupportedOpError, match="prenet_test"):
        trace(model, args, unknown_ops="error")
    try:
        register_cost("prenet_test::mm")(lambda n: 2 * n.output.numel * n.tensor(0).shape[1])
        graph = trace(model, args, unknown_ops="error")
        assert graph.total_flops == 2 * 4 * 2 * 8
        assert graph.unknown_ops == {}
        with pytest.raises(ValueError, match="registered already"):
            register_cost("prenet_test::mm")(lambda n: 0)
    finally:
        COSTS.pop("prenet_test::mm")


# --- training: what is frozen, what runs twice


@pytest.mark.parametrize(("frozen", "factor"), [((), 8), ((0, 1), 4), ((1, 2), 6)])
def test_only_needed_gradients_are_billed(frozen: tuple[int, ...], factor: int) -> None:
    net = nn.Sequential(*[linear(64, 64) for _ in range(3)])
    for i in frozen:
        net[i].requires_grad_(False)
    assert training_flops(net, torch.randn(8, 64)) == factor * 65_536
    assert forward_flops(net, torch.randn(8, 64)) == 3 * 65_536


def lora() -> nn.Module:
    def block(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))

    blocks = []
    for _ in range(2):
        base = linear(64, 64).requires_grad_(False)
        blocks.append(Call(block, base=base, down=linear(64, 4), up=linear(4, 64)))
    return nn.Sequential(*blocks)


def test_lora() -> None:
    graph = trace(lora(), (torch.randn(8, 64),), loss="none")
    assert graph.total_flops + graph.total_backward_flops == 241_664
    frozen, trained = graph.total_params, graph.trainable_params
    assert 4 * frozen + 12 * trained == 49_152


@pytest.mark.parametrize(("reentrant", "factor"), [(None, 9), (False, 11), (True, 12)])
@pytest.mark.parametrize("backend", ["export", "record"])
def test_activation_checkpointing(reentrant: bool | None, factor: int, backend: str) -> None:
    def run(self: Any, x: torch.Tensor) -> Any:
        if reentrant is None:
            return self.body(x)
        return checkpoint(self.body, x, use_reentrant=reentrant)

    model = Call(run, body=nn.Sequential(*[linear(64, 64) for _ in range(3)]))
    x = torch.randn(8, 64, requires_grad=True)
    graph = trace(model, (x,), loss="none", backend=backend)
    assert graph.total_flops + graph.total_backward_flops == factor * 65_536
    kept = 3 if reentrant is None else 1
    assert graph.saved_bytes == kept * 8 * 64 * 4


# --- wrappers, and the model stays as it was


def test_wrappers_are_looked_through() -> None:
    inner = nn.Sequential(linear(1000, 1000))
    for model in (torch.compile(inner), nn.DataParallel(inner)):
        graph = trace(model, (torch.zeros(1, 1000),))
        assert graph.total_flops == 2_000_000
        assert {n.module for n in graph if n.kind == "linear"} == {"0"}


@pytest.mark.parametrize("backend", ["export", "record"])
@pytest.mark.parametrize("fails", [False, True])
def test_tracing_changes_nothing(fails: bool, backend: str) -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        if fails:
            raise ValueError("half way")
        return y

    body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5))
    body[2].eval()
    model = Call(run, body=body)
    before = copy.deepcopy(model.state_dict())
    flags = [m.training for m in model.modules()]
    random = torch.random.get_rng_state()
    graphs = []
    for _ in range(2):
        if fails:
            with pytest.raises(TraceError, match="half way"):
                trace(model, (torch.randn(3, 4),), backend=backend)
        else:
            graphs.append(trace(model, (torch.ones(3, 4),), backend=backend))
    if fails:
        torch.random.set_rng_state(random)
    assert torch.equal(random, torch.random.get_rng_state())
    after = model.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert flags == [m.training for m in model.modules()]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    if graphs:
        assert graphs[0] == graphs[1]
