"""VGG-16 and BERT end to end: the paper's measurements and predictions beside ours.

The paper's times are seconds per epoch of its own loop: data loading on the CPU is inside. Ours are
iterations times the number of batches, without loading, so they can only be lower bounds where
loading decides.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.layers.summed import LayerSum
from experiments.shared.ledger import Ledger
from prenet_gnn.catalogue.devices import get_hardware
from prenet_gnn.encoding.encode import encode
from prenet_gnn.encoding.template import build_template
from prenet_gnn.workload.workload import Workload

FILE = Path("raw", "prenet", "prenet_paper_results.csv")
# The paper's table of GPUs gives its V100 the clock and the bus of the PCIe card.
DEVICES = {"Tesla V100-16GB": "Tesla V100-PCIE-16GB"}
# The paper's loop: Adam, float32, cuDNN as it is.
WORKLOAD = Workload(mode="train", precision="fp32", optimizer="adam", cudnn_benchmark=False)


def _graph(model: str, batch_size: int, seq_len: float) -> object:
    """The traced training step of a model of the paper."""
    from tracing import trace, zoo

    if model == "vgg16":
        net, args, kwargs = zoo.build("torchvision:vgg16", batch_size=batch_size, image_size=224)
    else:
        net, args, kwargs = zoo.build(
            "transformers:BertForSequenceClassification",
            batch_size=batch_size,
            seq_len=int(seq_len),
        )
    return trace(net, args, kwargs)


def end_to_end(
    data_dir: Path, operators: pd.DataFrame, rows: int, ledger: Ledger, *, quick: bool = False
) -> dict[str, object]:
    """Predicts every run of the paper with the sum over layers and with the shipped network."""
    from prenet_gnn.predictor.loading import load_predictor

    paper = pd.read_csv(data_dir / FILE)
    paper = paper[paper["kind"] == "end_to_end"]
    if quick:
        paper = paper[paper["batch_size"] == 64].head(2)
    predictor = load_predictor()
    summed = LayerSum(operators, (), max(rows, 200)).fit("COCMCT")
    graphs: dict[tuple[str, int], object] = {}
    for line in paper.itertuples():
        model, batch = str(line.model), int(line.batch_size)
        key = {"model": model, "gpu": line.gpu, "batch_size": batch}
        if line.origin.endswith("vgg16_prediction.ipynb"):
            key["model"] = "vgg16 (notebook)"
        if ledger.has(**key):
            continue
        if (model, batch) not in graphs:
            graphs[model, batch] = _graph(model, batch, line.seq_len)
        graph = graphs[model, batch]
        device = get_hardware(DEVICES.get(str(line.gpu), str(line.gpu)))
        steps = math.ceil(line.dataset_size / batch)
        gnn = steps * predictor.predict(graph, hardware=device, workload=WORKLOAD).seconds
        encoded = encode(build_template(graph, "fp32"), batch, "fp32")
        layers = steps * float(summed.predict([(encoded, WORKLOAD, device)])[0])
        true = float(line.measured_s_per_epoch)
        ledger.add(
            {
                **key,
                "paper_measured_s": true,
                "paper_predicted_s": float(line.predicted_with_features_s),
                "paper_error_percent": float(line.error_with_features_pct),
                "layer_sum_s": layers,
                "layer_sum_error_percent": 100 * abs(layers / true - 1),
                "gnn_s": gnn,
                "gnn_error_percent": 100 * abs(gnn / true - 1),
            }
        )
    frame = pd.DataFrame(ledger.rows)
    means = frame.filter(like="percent").mean().round(1)
    slower = frame["gnn_s"] > frame["paper_measured_s"]
    return {
        "runs": len(frame),
        "mean error in percent": {str(k): float(v) for k, v in means.items()},
        "runs where our iterations alone exceed the paper's epoch": int(np.sum(slower)),
        "note": "the paper's times include loading the data on the CPU; ours do not",
    }
