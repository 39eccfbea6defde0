"""Which traced graph belongs to which measured row."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from prenet_gnn.common.files import write_whole
from prenet_gnn.errors import DataError
from prenet_gnn.workload.frameworks import fuses_attention

CACHE_VARIABLE = "PRENET_CACHE"
DEFAULT_CACHE = Path("~/.cache/prenet-gnn")
NEUSIGHT_CONFIGS = Path("raw", "neusight", "data", "DLmodel_configs")
# Libraries whose attention code is a choice: torchvision's runs fused wherever PyTorch can.
CHOOSE_ATTENTION = ("timm", "transformers")
# torchvision rows without an image size: the benchmark scripts of the sources use 224 x 224.
TORCHVISION_IMAGE_SIZE = 224
# Heads that NeuSight's scripts put on BERT; its configs name another one.
NEUSIGHT_HEADS = {
    ("bert", "train"): "BertForPreTraining",
    ("bert", "infer"): "BertForSequenceClassification",
}


@dataclass(frozen=True, slots=True, order=True)
class GraphKey:
    """What a graph depends on besides the tracer; the batch size is set afterwards.

    Attributes:
        library: `timm`, `torchvision` or `transformers`.
        model: Name in that library, or of a NeuSight config.
        image_size: Height and width in pixels, 0 = the model has no image or takes its default.
        seq_len: Tokens per sample, 0 = none.
        mode: `train` or `infer`.
        attention: `eager` (matrix products and softmax apart) or `sdpa` (one fused operator).
    """

    library: str
    model: str
    image_size: int = 0
    seq_len: int = 0
    mode: str = "train"
    attention: str = "sdpa"

    @property
    def stem(self) -> str:
        """File name without suffix; the hash keeps names apart that differ in odd characters."""
        sizes = f"{self.image_size}-{self.seq_len}-{self.mode}-{self.attention}"
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{self.library}-{self.model}")[-100:].lstrip(".-")
        digest = hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:8]
        return f"{plain}-{sizes}-{digest}"


def graph_requests(frame: pd.DataFrame) -> pd.Series:
    """The key of the graph of every row of `read_measurements`; many rows share one.

    A column `attention`, as `read_published` has it, says where it is known which code ran.
    """
    columns = ("library", "model", "image_size", "seq_len", "mode", "torch_version")
    known: dict[tuple[object, ...], GraphKey] = {}
    keys = []
    stated = frame["attention"].tolist() if "attention" in frame else [""] * len(frame)
    for row in zip(*(frame[name].tolist() for name in columns), stated, strict=True):
        if row not in known:
            known[row] = _key(*row)
        keys.append(known[row])
    return pd.Series(keys, index=frame.index, dtype="object")


def zoo_spec(key: GraphKey, data_dir: Path | None, folder: Path) -> str:
    """The spec that `tracing.zoo.build` takes for a key.

    NeuSight's models are configs of the data folder; a copy with the head that was measured is
    written below `folder`.

    Raises:
        DataError: The config of a NeuSight model is missing or damaged.
    """
    if key.library != "transformers" or data_dir is None:
        return f"{key.library}:{key.model}"
    source = data_dir / NEUSIGHT_CONFIGS / f"{key.model}.json"
    if not source.is_file():
        return f"{key.library}:{key.model}"
    try:
        config = json.loads(source.read_text(encoding="utf-8"))
        head = NEUSIGHT_HEADS.get((config.get("model_type"), key.mode))
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"{source} is not a model config: {error}.") from None
    if head is None:
        return f"transformers:{source}"
    config["architectures"] = [head]
    target = folder / "configs" / f"{key.model}-{key.mode}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, json.dumps(config, indent=2))
    return f"transformers:{target}"


def cache_root(folder: str | Path | None = None) -> Path:
    """The cache folder: the one given, `PRENET_CACHE`, or `~/.cache/prenet-gnn`."""
    return Path(folder or os.environ.get(CACHE_VARIABLE) or DEFAULT_CACHE).expanduser()


def graph_folder(folder: str | Path | None = None) -> Path:
    """Where graphs of the present tracer lie; another tracer version has another folder."""
    from tracing import TRACER_VERSION

    return cache_root(folder) / "graphs" / f"tracer-{TRACER_VERSION}"


def graph_path(key: GraphKey, folder: str | Path | None = None) -> Path:
    """File of a graph, whether or not it exists."""
    return graph_folder(folder) / f"{key.stem}.json.gz"


def error_path(key: GraphKey, folder: str | Path | None = None) -> Path:
    """File that holds why a graph could not be made."""
    return graph_folder(folder) / f"{key.stem}.error.json"


def _key(
    library: str, model: str, image: int, seq: int, mode: str, version: int, attention: str
) -> GraphKey:
    if library == "torchvision" and not image and "rcnn" not in model:
        image = TORCHVISION_IMAGE_SIZE
    if not attention:
        # Unknown versions, written 0, are of 2018 to 2022, before fused attention.
        fused = library not in CHOOSE_ATTENTION or fuses_attention(library, divmod(version, 100))
        attention = "sdpa" if fused else "eager"
    return GraphKey(library, model, image, seq, mode, attention)
