"""Python calls that must be refused by an error of ours which names what was wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from prenet_gnn import PreNetError, Workload, compare, get_hardware, load_predictor
from prenet_gnn.planning import PlanRequest, plan
from tracing import OpGraph, TraceError, trace, zoo

T4 = "Tesla T4"


class Lab:
    """A graph and a predictor, made once."""

    def __init__(self) -> None:
        self.net, self.args = nn.Linear(4, 4), (torch.empty(2, 4),)
        self.graph, self.predictor = trace(self.net, self.args), load_predictor()

    def predict(self, *words: Any) -> Any:
        return self.predictor.predict(*words)

    def compare(self, **words: Any) -> Any:
        return compare(
            **{"graph": self.graph, "predictor": self.predictor, "workload": Workload()} | words
        )

    def plan(self, graph: Any = None, **words: Any) -> Any:
        request = PlanRequest(**{"samples": 8, "devices": (T4,)} | words)
        return plan(self.graph if graph is None else graph, self.predictor, Workload(), request)


@pytest.fixture(scope="module")
def lab() -> Lab:
    return Lab()


NAN = math.nan
CASES: dict[str, tuple[Callable[[Lab], Any], str]] = {
    # tracing
    "trace nothing": (lambda lab: trace(None, lab.args), "not NoneType"),
    "trace a class": (lambda lab: trace(nn.Linear, lab.args), "not type"),
    "trace a function": (lambda lab: trace(torch.relu, lab.args), "takes a torch.nn.Module"),
    "trace without inputs": (lambda lab: trace(lab.net), "required positional argument"),
    "trace args none": (lambda lab: trace(lab.net, None), "must be a tuple"),
    "trace kwargs list": (lambda lab: trace(lab.net, lab.args, [1]), "must be a dict"),
    "trace kwargs unknown": (lambda lab: trace(lab.net, lab.args, {"z": 1}), "'z'"),
    "trace backend": (lambda lab: trace(lab.net, lab.args, backend="x"), "backend must be"),
    "trace loss": (lambda lab: trace(lab.net, lab.args, loss=3), "loss must be"),
    "trace shape": (lambda lab: trace(lab.net, (torch.empty(2, 5),)), "cannot be multiplied"),
    "trace numpy": (lambda lab: trace(lab.net, (np.zeros((2, 4)),)), "not numpy.ndarray"),
    "trace two devices": (
        lambda lab: trace(nn.Linear(4, 4, device="meta"), lab.args),
        "same device",
    ),
    "zoo none": (lambda lab: zoo.build(None, batch_size=1), "spec is empty"),
    "zoo number": (lambda lab: zoo.build(5, batch_size=1), "spec is empty"),
    **{
        f"zoo batch {value!r}": (
            lambda lab, value=value: zoo.build("timm:resnet18", batch_size=value),
            "whole number of at least 1",
        )
        for value in (0, -2, "4", 2.5, True, None, NAN)
    },
    **{
        f"zoo {name} {value!r}": (
            lambda lab, name=name, value=value: zoo.build(
                "timm:resnet18", batch_size=1, **{name: value}
            ),
            says,
        )
        for name, value, says in (
            ("image_size", -1, "image_size must be"),
            ("image_size", "a", "image_size must be"),
            ("seq_len", 0, "seq_len must be"),
            ("mode", "x", "Allowed: train, infer"),
            ("attention", "x", "Allowed: eager, sdpa"),
        )
    },
    **{
        f"batch size {value!r}": (
            lambda lab, value=value: lab.graph.with_batch_size(value),
            "whole number of at least 1",
        )
        for value in (0, -1, "3", NAN, True, None)
    },
    "graph from words": (lambda lab: OpGraph.from_json("hello"), "cannot read graph"),
    "graph from braces": (lambda lab: OpGraph.from_json("{}"), "no graph of ours"),
    # predicting
    "weights missing": (lambda lab: load_predictor("/nonexistent"), "holds no weights"),
    "calibration a folder": (lambda lab: load_predictor(calibration="/tmp"), "calibration"),
    **{
        f"predict {type(graph).__name__}": (
            lambda lab, graph=graph: lab.predict(graph, T4),
            f"not {type(graph).__name__}",
        )
        for graph in (None, "timm:resnet18", 3, nn.ReLU(), (n for n in ()))
    },
    "predict nothing": (lambda lab: lab.predict(OpGraph(()), T4), "no operators"),
    "predict no sample": (
        lambda lab: lab.predict(trace(lab.net, (torch.empty(0, 4),)), T4),
        "has no sample",
    ),
    **{
        f"device {name!r}"[:40]: (lambda lab, name=name: lab.predict(lab.graph, name), says)
        for name, says in (
            (None, "not None"),
            (5, "not 5"),
            (NAN, "not nan"),
            (b"T4", "a name or a file"),
            ("", "empty"),
            ("T4" * 5000, "not in the catalogue"),
            ("no\nsuch", "not in the catalogue"),
        )
    },
    "device by number": (lambda lab: get_hardware(100), "not 100"),
    "workload is text": (lambda lab: lab.predict(lab.graph, T4, "fp16"), "not str"),
    "workload is a dict": (lambda lab: lab.predict(lab.graph, T4, {"mode": "infer"}), "not dict"),
    "many of none": (lambda lab: lab.predictor.predict_many([], []), "equal lengths"),
    "many of different lengths": (
        lambda lab: lab.predictor.predict_many([lab.graph] * 2, [T4] * 3),
        "equal lengths",
    ),
    "depth": (lambda lab: lab.predict(lab.graph, T4).by_module(-1), "depth must be"),
    "depth is text": (lambda lab: lab.predict(lab.graph, T4).by_module("x"), "depth must be"),
    **{
        f"workload {name} {value!r}": (lambda lab, f={name: value}: Workload(**f), says)
        for name, value, says in (
            ("mode", None, "mode 'None'"),
            ("mode", ["train"], "Did you mean 'train'"),
            ("precision", 16, "precision '16'"),
            ("optimizer", "Adam", "Did you mean 'adam'"),
            ("compiled", 1, "true or false"),
            ("channels_last", "yes", "true or false"),
            ("framework", None, "must be text"),
            ("framework", "x", "no version of PyTorch"),
            ("timed", ["forward"], "must be text"),
            ("timed", "forward+forward", "more than once"),
        )
    },
    # comparing and planning
    **{
        f"compare {name} {value!r}": (lambda lab, f={name: value}: lab.compare(**f), says)
        for name, value, says in (
            ("graph", None, "not NoneType"),
            ("workload", None, "not NoneType"),
            ("devices", [], "a list of names"),
            ("devices", T4, "a list of names"),
            ("devices", [3], "not 3"),
            ("samples", -1, "samples must be"),
            ("samples", NAN, "samples must be"),
            ("samples", 1.5, "samples must be"),
            ("sort", "x", "Allowed: time, cost"),
            ("prices", {T4: -1}, "zero or more"),
            ("prices", {T4: "a"}, "zero or more"),
            ("prices", {T4: NAN}, "zero or more"),
            ("prices", {T4: True}, "zero or more"),
            ("prices", [1], "must be a dict"),
        )
    },
    **{
        f"plan {name} {value!r}": (lambda lab, f={name: value}: lab.plan(**f), says)
        for name, value, says in (
            ("graph", 3, "not int"),
            ("samples", "a", "samples must be a whole number"),
            ("samples", None, "samples must be a whole number"),
            ("samples", 1.5, "samples must be a whole number"),
            ("samples", 10**30, "samples must be between"),
            ("epochs", NAN, "epochs must be a whole number"),
            ("epochs", 0, "epochs must be above zero"),
            ("seed", "x", "seed must be a whole number"),
            ("seed", -1, "seed must be between"),
            ("trials", 2.5, "trials must be a whole number"),
            ("global_batch", 2.5, "global_batch must be a whole number"),
            ("batch_sizes", ("a",), "batch_sizes[0] must be a whole number"),
            ("batch_sizes", (0,), "batch sizes must be one or more"),
            ("batch_sizes", "12", "must be a tuple"),
            ("precisions", "fp16", "must be a tuple"),
            ("precisions", ("fp23",), "fp23"),
            ("devices", T4, "must be a tuple"),
            ("devices_per_node", 2.5, "devices_per_node must be a whole number"),
            ("devices_per_node", 99, "between 1 and 16"),
            ("compiled", (), "compiled is empty"),
            ("checkpointing", (), "checkpointing is empty"),
            ("budget_usd", "cheap", "budget_usd must be a number"),
            ("budget_usd", NAN, "budget_usd must be above zero"),
            ("deadline_s", 0, "deadline_s must be above zero"),
            ("objective", "beauty", "Allowed: time, cost"),
            ("sampler", "magic", "Allowed: auto"),
            ("prices", {T4: -3.0}, "zero or more"),
        )
    },
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_call_is_one_line(lab: Lab, case: str) -> None:
    call, says = CASES[case]
    with pytest.raises((PreNetError, TraceError)) as caught:
        call(lab)
    text = str(caught.value)
    assert says in text
    assert len(text) < 500


def test_a_bare_version_is_one_of_pytorch(lab: Lab) -> None:
    assert Workload(framework="2.4.0") == Workload(framework="torch-2.4.0")
    assert Workload(framework="2.4.0").framework_version == (2, 4)
    for name in ("", "torch-unknown", "torch-unknown (NGC container)", "torch-2.4 or 2.5"):
        assert Workload(framework=name).framework == name
