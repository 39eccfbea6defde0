"""Real models of the zoo, the device entry, and that what is measured can be traced."""

import importlib

import pytest
import torch

from prenet_gnn.catalogue.reading import device_from
from prenet_gnn.measuring import MeasuredRecord, build
from prenet_gnn.measuring.graphs import GraphSource
from prenet_gnn.measuring.loss import tensors_in
from prenet_gnn.measuring.models import FAMILIES, parse_spec


@pytest.mark.parametrize("spec", ["timm:lcnet_050", "transformers:bert-tiny"])
def test_zoo_models_get_real_tensors(spec):
    pytest.importorskip(spec.partition(":")[0])
    model, args, kwargs = build(spec, 2, 32, 4, "train", "cpu")
    tensors = [*model.parameters(), *model.buffers(), *tensors_in((args, kwargs))]
    assert {t.device.type for t in tensors} == {"cpu"}
    assert all(torch.isfinite(t).all() for t in tensors if t.is_floating_point())
    with torch.no_grad():
        outputs = tensors_in(model.eval()(*args, **kwargs))
    assert all(torch.isfinite(t).all() for t in outputs if t.is_floating_point())


def test_tokens_are_random_and_positions_are_not():
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, _, kwargs = build("transformers:bert-tiny", 4, None, 16, "train", "cpu")
    assert len(kwargs["input_ids"].unique()) > 10
    positions = model.bert.embeddings.position_ids[0]
    assert torch.equal(positions, torch.arange(len(positions)))


def test_meta_stays_meta():
    pytest.importorskip("timm")
    model, args, _ = build("timm:lcnet_050", 2, 32)
    assert all(t.is_meta for t in [*model.parameters(), *args])


def families():
    parse_spec("layer:dense")  # registers them all
    return sorted(FAMILIES)


@pytest.mark.parametrize("name", families())
def test_every_family_can_be_traced(name):
    """So that records train a predictor; the batch is taken from the graph."""
    graphs = GraphSource()
    for batch in (2, 4):
        record = MeasuredRecord(model=name, batch_size=batch, image_size=8, seq_len=8, mode="infer")
        graph = graphs(record)
        assert len(graph.nodes) > 0
        assert graph.batch_size == (batch if name != "net:graph" else graph.batch_size)


def test_a_graph_network_is_traced_at_its_own_size():
    graphs = GraphSource()
    first, second = (
        graphs(MeasuredRecord(model="net:graph", batch_size=batch, mode="infer"))
        for batch in (2, 4)
    )
    assert second.total_flops > first.total_flops
    again = MeasuredRecord(model="net:graph", batch_size=4, mode="infer")
    assert graphs(again) is second


def test_detected_cpu_is_a_catalogue_entry(monkeypatch):
    module = importlib.import_module("prenet_gnn.measuring.device_entry")
    cpu = torch.device("cpu")
    assert module.measure_bandwidth_bytes_per_s(cpu, 1) > 0
    assert module.measure_flops_per_s(cpu, None, 32) > 0
    # how fast this machine happens to be is not what the entry's form depends on
    monkeypatch.setattr(module, "measure_bandwidth_bytes_per_s", lambda d: 2.00004e10)
    monkeypatch.setattr(module, "measure_flops_per_s", lambda d: 1.23456e11)
    entry = module.detect("cpu")
    device = device_from(entry, "test")
    assert device.kind == "cpu"
    assert device.memory_bytes_per_s == 2e10
    assert device.peak_flops_per_s("fp32") == 1.235e11
    assert "Rates measured" in device.notes
