"""FLOPs counted by hand for every registered formula: two for each multiply-accumulate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tracing import OpNode, Source, TensorSpec
from tracing.costs.formulas import COSTS
from tracing.costs.node import node_cost
from tracing.costs.traffic import Traffic, traffic
from tracing.costs.vocab import KINDS, OP_KIND, kind_of

Shape = tuple[int, ...]


def op(
    kind: str,
    *inputs: Shape,
    out: Shape,
    name: str = "",
    dtype: str = "float32",
    data: int = 1,
    **attrs: Any,
) -> OpNode:
    """A call whose first inputs are data and whose others are parameters; all need gradients."""
    sources = [
        Source("input", slot=1, name=f"x{i}") if i < data else Source("param", name=f"p{i}")
        for i in range(len(inputs))
    ]
    specs = tuple(TensorSpec(shape, dtype) for shape in inputs)
    return OpNode(
        0,
        "call",
        f"aten.{name or kind}.default",
        kind,
        "",
        tuple(sources[: len(inputs)]),
        specs,
        (TensorSpec(out, dtype),),
        attrs,
        (True,) * len(inputs),
        True,
    )


# call, forward, gradient of the data, gradients of the weights
GOLDEN = [
    # 3x3 convolution, 4 -> 8 channels, 6x6 outputs, batch 2
    (op("conv", (2, 4, 8, 8), (8, 4, 3, 3), out=(2, 8, 6, 6)), 41_472, 41_472, 41_472),
    # depthwise: each of 8 channels has one 3x3 filter
    (op("conv", (1, 8, 8, 8), (8, 1, 3, 3), out=(1, 8, 6, 6)), 5_184, 5_184, 5_184),
    # 1-d with bias, which costs nothing
    (op("conv", (2, 3, 10), (5, 3, 3), (5,), out=(2, 5, 8)), 1_440, 1_440, 1_440),
    # transposed: every input element meets 6 x 2 x 2 weights
    (op("conv_transpose", (2, 4, 5, 5), (4, 6, 2, 2), out=(2, 6, 10, 10)), 9_600, 9_600, 9_600),
    (
        op("conv", (2, 4, 5, 5), (4, 6, 2, 2), out=(2, 6, 10, 10), transposed=True),
        9_600,
        9_600,
        9_600,
    ),
    # 8 rows x 64 in x 32 out
    (op("linear", (8, 64), (32, 64), (32,), out=(8, 32)), 32_768, 32_768, 32_768),
    (op("linear", (2, 4, 64), (32, 64), out=(2, 4, 32)), 32_768, 32_768, 32_768),
    # addmm takes the bias first
    (op("linear", (5,), (2, 3), (3, 5), out=(2, 5), name="addmm"), 60, 0, 120),
    (op("matmul", (2, 3, 4), (2, 4, 5), out=(2, 3, 5), name="bmm"), 240, 240, 240),
    (op("matmul", (7, 2, 3, 4), (4, 5), out=(7, 2, 3, 5), name="matmul"), 1_680, 1_680, 1_680),
    (op("matmul", (3, 4), (4,), out=(3,), name="mv"), 24, 24, 24),
    (op("matmul", (4,), (4,), out=(), name="dot"), 8, 8, 8),
    (op("matmul", (2, 3, 5), (2, 3, 4), (2, 4, 5), out=(2, 3, 5), name="baddbmm"), 240, 0, 480),
    (op("matmul", (3, 5), (2, 3, 4), (2, 4, 5), out=(3, 5), name="addbmm"), 240, 0, 480),
    (op("matmul", (3,), (4,), out=(3, 4), name="outer"), 0, 0, 0),
    # four real products in a complex one
    (op("matmul", (3, 4), (4, 5), out=(3, 5), name="mm", dtype="complex64"), 480, 480, 480),
    (
        op("matmul", (2, 3, 4), (4, 5), out=(2, 3, 5), name="einsum", equation="bij,jk->bik"),
        240,
        240,
        240,
    ),
    # x1 W x2 with 6 outputs: 2 x 6 x 4 x 5 for each of 3 rows
    (op("matmul", (3, 4), (6, 4, 5), (3, 5), out=(3, 6), name="bilinear"), 720, 720, 1_440),
    # 2 products of 4 x 4 x 8 in 3 heads forward, five in the backward of flash attention, all
    # billed to the query
    (op("attention", *[(1, 3, 4, 8)] * 3, out=(1, 3, 4, 8), backend="flash"), 1_536, 3_840, 0),
    (op("attention", *[(1, 3, 4, 8)] * 3, out=(1, 3, 4, 8), backend="math"), 1_536, 3_072, 0),
    # 8 query heads share 2 key heads; 5 keys
    (
        op("attention", (1, 8, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16), out=(1, 8, 4, 16)),
        10_240,
        25_600,
        0,
    ),
    # LSTM of 3 -> 2 over 5 steps, batch 2: 2 * 10 * 8 * (3 + 2); the gradient of the state is not
    # needed before the first step
    (
        op(
            "rnn", (2, 5, 3), (1, 2, 2), (1, 2, 2), (8, 3), (8, 2), (8,), (8,),
            out=(2, 5, 2), name="lstm", batch_first=True, num_layers=1,
        ),
        800,
        480,
        800 + 256,
    ),
    # one GRU step of 3 -> 2, batch 4; the state handed in gets its gradient
    (op("rnn", (4, 3), (4, 2), (6, 3), (6, 2), out=(4, 2), name="gru_cell", data=2), 240, 240, 240),
]  # fmt: skip


@pytest.mark.parametrize(
    ("node", "forward", "data", "weight"),
    GOLDEN,
    ids=[f"{n.op}-{i}" for i, (n, *_) in enumerate(GOLDEN)],
)
def test_golden(node: OpNode, forward: int, data: int, weight: int) -> None:
    cost = node_cost(node)
    assert cost.forward_flops == forward
    assert (cost.grad_input_flops, cost.grad_weight_flops) == (data, weight)


def test_every_formula_has_a_golden_row() -> None:
    assert {node.kind for node, *_ in GOLDEN} == set(COSTS)


def test_every_kind_has_operators_or_is_the_rest() -> None:
    assert set(OP_KIND.values()) | {"other"} == set(KINDS)
    assert set(COSTS) <= set(KINDS)


def test_no_gradient_no_cost() -> None:
    node = op("linear", (8, 64), (32, 64), out=(8, 32))
    for needs in ((True, False), (False, True)):
        cost = node_cost(OpNode(**{**fields(node), "needs_grad": needs}))
        assert (cost.grad_input_flops, cost.grad_weight_flops) == tuple(32_768 * n for n in needs)
    assert node_cost(OpNode(**{**fields(node), "differentiable": False})).backward_flops == 0


def fields(node: OpNode) -> dict[str, Any]:
    return {name: getattr(node, name) for name in OpNode.__dataclass_fields__}


def test_bytes_of_a_linear_layer() -> None:
    cost = node_cost(op("linear", (8, 64), (32, 64), out=(8, 32)))
    data, weight, out = 8 * 64 * 4, 32 * 64 * 4, 8 * 32 * 4
    assert (cost.forward_read_bytes, cost.forward_write_bytes) == (data + weight, out)
    assert cost.backward_read_bytes == out + data + weight
    assert cost.backward_write_bytes == data + weight
    half = node_cost(op("linear", (8, 64), (32, 64), out=(8, 32), dtype="bfloat16"))
    assert 2 * half.forward_bytes == cost.forward_bytes


def test_views_are_free_and_copies_are_not() -> None:
    view = node_cost(op("view", (4, 6), out=(6, 4), name="transpose"))
    assert (view.forward_bytes, view.backward_bytes) == (0, 0)
    copy = node_cost(op("view", (4, 6), out=(24,), name="reshape", copies=True))
    assert copy.forward_bytes == 2 * 24 * 4


def test_a_lookup_reads_rows_not_the_table() -> None:
    table = op("embedding", (1000, 64), out=(32, 64))
    ids = TensorSpec((32,), "int64")
    node = OpNode(
        **{
            **fields(table),
            "sources": (Source("param", name="w"), Source("input")),
            "input_specs": (table.input_specs[0], ids),
            "needs_grad": (True, False),
        }
    )
    cost = node_cost(node)
    assert cost.forward_bytes == 2 * 32 * 64 * 4 + 32 * 8
    assert (cost.forward_flops, cost.backward_flops) == (0, 0)


@pytest.mark.parametrize(
    ("target", "kind", "known"),
    [
        ("aten.conv2d.default", "conv", True),
        ("aten.relu_.default", "activation", True),
        ("aten.__and__.Tensor", "binary", True),
        ("aten.__iand__.Tensor", "binary", True),
        ("torchvision.nms.default", "index", True),
        ("mylib.linear.default", "other", False),
        ("aten.never_heard_of.default", "other", False),
    ],
)
def test_kinds(target: str, kind: str, known: bool) -> None:
    assert kind_of(target) == (kind, known)


def test_in_place_operators_of_python_are_known() -> None:
    node = OpNode(0, "and", "aten.__iand__.Tensor", "binary", "", (), (), ())
    assert node.inplace and not replace(node, target="aten.__and__.Tensor").inplace
    assert replace(node, target="aten.add_.Tensor").inplace


def test_traffic_of_a_layer_by_hand() -> None:
    # 8 rows x 64 in x 32 out
    x, weight, out = 8 * 64, 32 * 64, 8 * 32
    layer = op("linear", (8, 64), (32, 64), out=(8, 32))
    assert traffic(layer) == Traffic(
        4 * (x + weight), 4 * out, 4 * (out + x + weight), 4 * (x + weight)
    )
    half = traffic(layer, (2, 2), (2,))
    assert (half.forward, half.backward) == (2 * (x + weight + out), 2 * (2 * (x + weight) + out))
    # by kernel, the gradients of data and of weight each read the gradient of the output
    assert traffic(layer, by_kernel=True).backward == 4 * (2 * (x + weight) + 2 * out)


def test_a_tensor_that_is_passed_twice_is_read_twice_by_a_kernel() -> None:
    once = op("binary", (8,), (8,), out=(8,), name="add", data=2)
    twice = replace(once, sources=(once.sources[0],) * 2)
    assert traffic(once).forward_read == 2 * traffic(twice).forward_read == 64
    assert traffic(twice, by_kernel=True).forward_read == 64


def test_a_view_moves_nothing_unless_it_copies() -> None:
    view = op("view", (8, 2), out=(16,), name="reshape")
    assert traffic(view) == Traffic()
    assert traffic(replace(view, attrs={"copies": True})) == Traffic(64, 64, 64, 64)
