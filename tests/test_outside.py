"""Graphs, formats and devices outside of what was seen: distances, warnings and intervals."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from networks import config
from torch import nn

from experiments import outside as study
from prenet_gnn import Workload
from prenet_gnn.encoding.latents import Latents
from prenet_gnn.errors import CheckpointError
from prenet_gnn.network.checkpoint import Checkpoint, Facts
from prenet_gnn.network.interval import Intervals
from prenet_gnn.network.latents import LatentSizes
from prenet_gnn.network.network import build_single
from prenet_gnn.predictor.derived import DerivedGraphs
from prenet_gnn.predictor.outside import SHARES, Seen, seen_graphs, spread_out, summary, zone_of
from prenet_gnn.predictor.predictor import Predictor
from tracing import trace

CARD = "NVIDIA GeForce RTX 3090"
INTERVALS = {
    "known_device|train": 0.3, "known_device|train|inside": 0.2, "known_device|train|outside": 0.6,
    "new_device|train": 0.5,
}  # fmt: skip


def convolutions(width, depth):
    layers = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def graph_of(model, *shape):
    return trace(model.train(), (torch.zeros(*shape),))


@pytest.fixture(scope="module")
def graphs():
    """Convolutional networks in three families, and one of their kind that is not among them."""
    sizes = [(16 * (1 + i), 2 + i % 3) for i in range(9)]
    known = [graph_of(convolutions(*size), 8, 3, 32, 32) for size in sizes]
    return known, graph_of(convolutions(40, 3), 8, 3, 32, 32)


@pytest.fixture(scope="module")
def odd():
    """A recurrent network without any convolution."""
    return graph_of(nn.LSTM(64, 256, 2, batch_first=True), 8, 50, 64)


@pytest.fixture(scope="module")
def seen(graphs):
    summaries = np.stack([summary(DerivedGraphs().encoded(g, "fp32")) for g in graphs[0]])
    return seen_graphs(summaries, [f"family-{i % 3}" for i in range(len(graphs[0]))])


def predictor(seen, timed=(f"{CARD}|fp32", f"{CARD}|fp64", f"{CARD}|half_matrix")):
    graphs = None if seen is None else json.loads(json.dumps(seen.to_dict()))
    facts = Facts(timed=tuple(timed), seen_graphs=graphs)
    settings, latents = config(hidden=8, layers=1), Latents(tuple(sorted(timed)))
    network = build_single(settings, LatentSizes.of(latents)).eval()
    intervals = Intervals.from_dict(INTERVALS)
    return Predictor(Checkpoint((network,), settings, latents, intervals, facts))


def half_width(prediction):
    return np.log(prediction.high_s / prediction.seconds)


def test_relatives_are_near_and_another_kind_of_network_is_far(graphs, odd, seen):
    assert seen.distance(DerivedGraphs().encoded(graphs[1], "fp32")) < 1.0
    assert seen.distance(DerivedGraphs().encoded(odd, "fp32")) > 2.0
    assert all(seen.distance(DerivedGraphs().encoded(g, "fp32")) < 0.1 for g in graphs[0])


def test_a_checkpoint_keeps_the_distances(graphs, odd, seen):
    again = Seen.from_dict(json.loads(json.dumps(seen.to_dict())))
    for graph in (graphs[1], odd):
        encoded = DerivedGraphs().encoded(graph, "fp32")
        assert again.distance(encoded) == pytest.approx(seen.distance(encoded), rel=0.1, abs=0.15)


def test_hundreds_of_graphs_take_little_room():
    rng = np.random.default_rng(0)
    found = seen_graphs(rng.random((2000, SHARES + 8)), [str(i % 50) for i in range(2000)])
    assert len(found.references) == 800
    assert len(json.dumps(found.to_dict())) < 60_000


def test_references_are_spread_out():
    points = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [9.0]])
    assert sorted(spread_out(points, 3)) == [0, 3, 5]
    assert list(spread_out(np.zeros((4, 2)), 3)) == [0]


def test_an_odd_network_is_warned_of_and_its_interval_is_wider(graphs, odd, seen):
    workload = Workload(framework="torch-2.4.0")
    ours = predictor(seen)
    near = ours.predict(graphs[1], CARD, workload)
    far = ours.predict(odd, CARD, workload)
    assert not [text for text in near.warnings if "unlike" in text]
    assert [text for text in far.warnings if "unlike" in text]
    assert half_width(near) == pytest.approx(0.2, rel=1e-3)
    assert half_width(far) == pytest.approx(0.6, rel=1e-3)


def test_double_precision_counts_as_outside(graphs, seen):
    workload = Workload(framework="torch-2.4.0", precision="fp64")
    found = predictor(seen).predict(graphs[1], CARD, workload)
    assert any("double precision" in text for text in found.warnings)
    assert half_width(found) == pytest.approx(0.6, rel=1e-3)


def test_a_side_without_its_own_width_is_wider_by_a_factor(graphs, odd, seen):
    workload = Workload(framework="torch-2.4.0")
    ours = predictor(seen, timed=())
    assert half_width(ours.predict(graphs[1], CARD, workload)) == pytest.approx(0.5, rel=1e-3)
    assert half_width(ours.predict(odd, CARD, workload)) == pytest.approx(0.75, rel=1e-3)


def test_weights_that_name_no_graphs_warn_of_none(odd):
    found = predictor(None).predict(odd, CARD, Workload(framework="torch-2.4.0"))
    assert not [text for text in found.warnings if "unlike" in text]
    assert half_width(found) == pytest.approx(0.3, rel=1e-3)


@pytest.mark.parametrize(
    "change",
    [{"limit": 0}, {"center": [1.0]}, {"references": "?"}, {"scale": None}, {"limit": "far"}],
)
def test_a_damaged_list_is_refused(seen, change):
    checkpoint = predictor(seen).checkpoint
    seen_graphs = {**checkpoint.facts.seen_graphs, **change}
    facts = replace(checkpoint.facts, seen_graphs=seen_graphs)
    with pytest.raises(CheckpointError, match="list of graphs is damaged"):
        Predictor(replace(checkpoint, facts=facts))


def made_up(rows=400):
    """Errors that are four times as large outside."""
    rng = np.random.default_rng(1)
    far = rng.random(rows) < 0.3
    return pd.DataFrame(
        {
            "run": "a", "fold": np.arange(rows) % 2, "split": "unseen-architecture",
            "mode": "train",
            "log": rng.normal(size=rows) * np.where(far, 0.4, 0.1), "new_device": False,
            "format": False, "distance": np.where(far, 1.5, 0.7),
        }
    )  # fmt: skip


def test_the_study_tells_sides_apart():
    table = study.with_warnings(made_up())
    row = next(iter(study.separation(table)))
    assert row["with"]["median"] > 2 * row["without"]["median"]
    assert row["auroc"] > 0.7
    widths = study.half_widths(table)
    assert widths["known_device|train|outside"] > 2 * widths["known_device|train|inside"]
    assert all(0.8 < row["coverage"] < 0.97 for row in study.coverage(table))


def test_the_study_is_narrower_near_training_and_takes_random_rows_there_only():
    table = made_up()
    near = table.assign(distance=0.3, split="random", log=table["log"] / 4)
    # random rows further off have no part in a width
    wild = near.assign(distance=0.8, log=9.0)
    both = study.with_warnings(pd.concat([table, near, wild], ignore_index=True))
    widths = study.half_widths(both)
    assert widths["known_device|train|near"] < widths["known_device|train|inside"] < 1
    lines = {(line["split"], line["zone"]): line for line in study.coverage(both)}
    assert lines["random", "near"]["coverage"] == pytest.approx(0.9, abs=0.05)
    assert lines["random", "inside"]["coverage"] == 0
    assert lines["random", "all"]["rows"] == 2 * len(table)


def test_zones_of_graphs():
    assert [zone_of(distance) for distance in (0.0, 0.5, 0.8, 1.0, 1.2)] == [
        "near", "near", "inside", "inside", "outside",
    ]  # fmt: skip


def test_auroc_of_chance_of_order_and_of_one_side():
    large = np.array([False, False, True, True])
    assert study.auroc(np.array([1.0, 2.0, 3.0, 4.0]), large) == 1.0
    assert study.auroc(np.zeros(4), large) == 0.5
    assert study.auroc(np.zeros(4), np.zeros(4, dtype=bool)) is None
