"""Models of every kind can be traced; `experiments.tracing_tables` has the full tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from experiments.shared.markdown import README
from experiments.tracing_tables import coverage, golden, speed
from experiments.tracing_tables.common import attempt, make
from experiments.tracing_tables.kinds import all_kinds
from experiments.writing import tracing as docs
from tracing import trace

pytestmark = pytest.mark.filterwarnings("ignore")
GROUPS = ("input", "region", "layer", "model", "geometric")
ZOO = (
    "torchvision:resnet18 torchvision:r3d_18 torchvision:lraspp_mobilenet_v3_large "
    "timm:vit_tiny_patch16_224 timm:ghostnet_100 timm:convnext_atto transformers:bert-small "
    "transformers:t5 transformers:llama transformers:clip"
).split()
# Named in the graph and in a warning; they have no formula.
UNKNOWN = {"prenet_tables.double.default", "aten.linalg_solve.default"}
# FLOPs by hand, forward and backward; a linear layer of 16 x 16 on 4 rows is 2,048.
HAND = {
    "region:compiled part": (2 * 4096 + 2048, 2 * 4096 + 4096 + 2 * 2048),
    "region:lazy": (2048, 2048),
    "model:autograd.Function": (2048, 2048),
    "model:torch.vmap": (2048, 2048),
    "model:torch.cond": (2048, 2048),
    "model:gradient penalty": (2 * 2048, 2 * 2048),
    # projection, then 4 x 2 x 2 x 6 x 6 x 8 for the scores and their use; five products back
    "model:flex_attention": (6144 + 4608, 6144 + 5 * 4608 // 2),
}
# At least this part of each library, in percent.
WANTED = {"timm": 100, "torchvision": 98, "transformers": 95, **dict.fromkeys(GROUPS, 100)}


@pytest.fixture(autouse=True)
def no_process_group() -> Iterator[None]:
    yield
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def check(rows: list[dict[str, Any]]) -> None:
    assert [row for row in rows if row["error"]] == []
    assert [row["model"] for row in rows if row["backends_agree"] == "no"] == []
    assert {op for row in rows for op in row["unknown_ops"].split()} <= UNKNOWN


@pytest.mark.parametrize("group", GROUPS)
def test_kinds(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [key for key in all_kinds() if key.startswith(f"{group}:")]
    with capsys.disabled():
        print()
        rows = list(make(coverage.STUDY, keys))
        print("\n".join(coverage.summary(rows)))
    check(rows)
    costs = {row["model"]: (row["forward_flops"], row["backward_flops"]) for row in rows}
    assert {key: costs[key] for key in HAND if key in costs} == {
        key: value for key, value in HAND.items() if key in costs
    }


@pytest.mark.parametrize(
    ("kind", "note"), [("torch.cond", "costlier branch"), ("flex_attention", "full square")]
)
def test_approximations_are_named(kind: str, note: str, caplog: pytest.LogCaptureFixture) -> None:
    model, args, kwargs = all_kinds()[f"model:{kind}"]()
    graph = trace(model, args, kwargs)
    assert any(note in text for text in graph.meta["approximated"])
    assert note in caplog.text


def test_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print()
        rows = list(make(coverage.STUDY, ZOO))
        print("\n".join(coverage.summary(rows)))
    check(rows)


@pytest.mark.slow
def test_everything() -> None:
    rows = list(make(coverage.STUDY, coverage.keys()))
    for group, some in coverage.groups(rows).items():
        traced = sum(not row["error"] for row in some)
        assert 100 * traced >= WANTED.get(group, 0) * len(some), group


@pytest.mark.parametrize("name", golden.CASES)
def test_hand_counts(name: str) -> None:
    row = attempt(golden.STUDY, name)
    assert row["verdict"] == "equal to the hand's", row


def test_costs_are_linear_in_nodes() -> None:
    short, long = speed.costs("chain of 1000"), speed.costs("chain of 10000")
    for column in ("cost_us_per_node", "saved_us_per_node"):
        assert long[column] < 2.5 * max(short[column], 1.0), column


def test_readme_shows_what_the_result_file_says():
    assert "\n| torchvision | " in docs.short()
    assert docs.short() in README.read_text(encoding="utf-8")
