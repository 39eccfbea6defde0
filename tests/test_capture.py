"""How models become graphs: names, sources, errors, both ways of tracing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tracing import TraceError, trace
from tracing.capture.model_call import Shell, all_tensors


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 3)))


def test_nodes_know_module_and_sources() -> None:
    graph = trace(small(), (torch.zeros(2, 4),))
    assert [(n.op, n.kind, n.module) for n in graph] == [
        ("linear", "linear", "0"),
        ("relu", "activation", "1"),
        ("linear", "linear", "2.0"),
        ("cross_entropy_loss", "loss", "loss"),
    ]
    first = graph.nodes[0]
    assert first.params == ("0.weight", "0.bias")
    assert first.inputs == (-1, -1, -1)
    assert first.input_specs[0].shape == (2, 4)
    assert graph.nodes[1].inputs == (0,)
    assert list(graph.inputs) == ["0"]
    assert graph.batch_size == 2
    assert graph.mode == "train"
    assert trace(small().eval(), (torch.zeros(2, 4),)).nodes[-1].module == "2.0"


def test_inputs_have_names_that_differ() -> None:
    class Many(nn.Module):
        def forward(self, a: Any, b: Any, *, mask: Any, targets: Any) -> Any:
            return a + b + mask + targets[0]["boxes"] + targets[1]["boxes"]

    x = torch.zeros(2)
    boxes = [{"boxes": x.clone()}, {"boxes": x.clone()}]
    graph = trace(Many(), (x, x.clone()), {"mask": x.clone(), "targets": boxes})
    assert list(graph.inputs) == ["0", "1", "mask", "targets[0]['boxes']", "targets[1]['boxes']"]


@pytest.mark.parametrize("loss", ["auto", "none"])
def test_the_loss_is_added_in_training_alone(loss: str) -> None:
    for model in (small(), small().eval()):
        graph = trace(model, (torch.zeros(2, 4),), loss=loss)
        added = [n for n in graph if n.kind == "loss"]
        assert bool(added) == (loss == "auto" and model.training)


def test_a_model_with_its_own_loss_keeps_it() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
            logits = self.lin(x)
            return {"loss": nn.functional.cross_entropy(logits, y), "logits": logits}

    graph = trace(Own(), (torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)))
    assert [n.kind for n in graph] == ["linear", "loss"]
    assert graph.nodes[-1].module == ""
    graph = trace(Own().eval(), (torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)))
    assert len(graph.outputs) == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("model",), "takes a torch.nn.Module, not str"),
        ((small(), 3), "args must be a tuple"),
        ((small(), (torch.zeros(2, 4),), [1]), "kwargs must be a dict"),
        ((small(), (torch.zeros(2, 5),)), "shape"),
        ((small(), ()), "missing 1 required positional argument"),
    ],
)
def test_wrong_calls(arguments: Any, text: str) -> None:
    with pytest.raises(TraceError, match=text) as caught:
        trace(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("option", ["loss", "unknown_ops", "attention_backend", "backend"])
def test_wrong_choices_name_the_right_ones(option: str) -> None:
    with pytest.raises(TraceError, match=f"{option} must be one of"):
        trace(small(), (torch.zeros(2, 4),), **{option: "nonsense"})


def nets() -> list[tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    image, text = torch.zeros(2, 3, 16, 16), torch.zeros(2, 5, 16)
    conv = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(True), nn.MaxPool2d(2), nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    return [
        (conv, (image,)),
        (layer, (text,)),
        (nn.GRU(16, 8, 2, bidirectional=True, batch_first=True), (text,)),
        (nn.Transformer(16, 2, 1, 1, 32, batch_first=True), (text, text)),
        (nn.Sequential(nn.ConvTranspose2d(3, 4, 2), nn.GroupNorm(2, 4), nn.GELU()), (image,)),
    ]


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("training", [True, False])
def test_both_ways_of_tracing_agree(number: int, training: bool) -> None:
    model, args = nets()[number]
    model.train(training)
    first = trace(model, args, backend="export")
    second = trace(model, args, backend="record")
    working = [
        [(n.target, n.kind, n.module, n.output_specs, n.needs_grad) for n in g if n.kind != "view"]
        for g in (first, second)
    ]
    assert working[0] == working[1]
    assert first.total_backward_flops == second.total_backward_flops
    assert first.saved_bytes == second.saved_bytes


def test_templates_put_tensors_back() -> None:
    class Box:
        __slots__ = ("inner", "label")

        def __init__(self, inner: Any) -> None:
            self.inner, self.label = inner, "kept"

    a, b = torch.zeros(1), torch.ones(2)
    box = Box({"x": [a, 3]})
    shell = Shell((box, {"y": b, "z": None}))
    assert len(shell.tensors) == 2
    filled = shell.fill([b, a])
    assert filled[0].inner["x"][0] is b
    assert filled[0].label == "kept"
    assert filled[1] == {"y": a, "z": None}
    assert box.inner["x"][0] is a
    assert [id(t) for t in all_tensors((box, {"y": b}))] == [id(a), id(b)]


def test_objects_that_refer_to_themselves_end() -> None:
    class Loop:
        def __init__(self) -> None:
            self.me, self.x = self, torch.zeros(2, 4)

    model = small()

    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, loop: Any) -> Any:
            return Loop() if loop is None else self.inner(loop.x)

    assert trace(Takes(), (Loop(),)).total_flops == 2 * 2 * (4 * 8 + 8 * 3)


@pytest.mark.parametrize("backend", ["export", "record"])
def test_a_conversion_that_changes_nothing_is_a_view(backend: str) -> None:
    class Converts(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.mul(2).type_as(x).float().to(torch.float32)
            return y.sum() + x.type_as(x.double()).sum()

    nodes = trace(Converts(), (torch.zeros(2, 4),), loss="none", backend=backend).nodes
    kinds = [
        (node.output.dtype, node.kind)
        for node in nodes
        if node.op in ("type_as", "float", "double", "to", "_to_copy")
    ]
    assert set(kinds) == {("float32", "view"), ("float64", "copy")}
    assert kinds.count(("float64", "copy")) == 2
