"""Weights on disk: safetensors beside a JSON description; nothing is unpickled."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prenet_gnn.common.files import read_json
from prenet_gnn.encoding.device import DEVICE, RUN
from prenet_gnn.encoding.fields import OPERATORS, SCHEMA_VERSION, WIDTH
from prenet_gnn.errors import CheckpointError, ConfigError
from prenet_gnn.network.latents import Latents

if TYPE_CHECKING:
    from prenet_gnn.network.network import TimeGNN
    from prenet_gnn.network.paired import PairedGNN

SCHEMA = "prenet-weights-1"
WEIGHTS, DESCRIPTION = "weights.safetensors", "model.json"
MAX_BYTES = 200 * 2**20
SHIPPED = Path(__file__).resolve().parents[1] / "pretrained"


@dataclass(frozen=True)
class Checkpoint:
    """An ensemble of networks and what is known about them.

    Attributes:
        models: Networks of one configuration that are averaged.
        latents: Names of devices, hosts and frameworks in the latent tables.
        intervals: Half-widths of 90% intervals, in natural logarithm, by situation.
        facts: Sources, licences, metrics, versions, seeds: the model card in short.
    """

    models: tuple[TimeGNN | PairedGNN, ...]
    latents: Latents
    intervals: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def feature_schema() -> dict[str, Any]:
    """What the columns of the network's inputs are; weights of another schema are refused."""
    names = "|".join((*OPERATORS, *DEVICE, *RUN))
    digest = hashlib.sha256(names.encode()).hexdigest()[:16]
    return {"version": SCHEMA_VERSION, "width": WIDTH, "names": digest}


def save_checkpoint(checkpoint: Checkpoint, folder: str | Path) -> None:
    """Writes `weights.safetensors` and `model.json`; each appears whole or not at all."""
    from safetensors.torch import save

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"{number}.{name}": value.detach().contiguous()
        for number, model in enumerate(checkpoint.models)
        for name, value in model.state_dict().items()
    }
    data = save(tensors)
    description = {
        "schema": SCHEMA,
        "features": feature_schema(),
        "members": len(checkpoint.models),
        "config": checkpoint.models[0].config.to_dict(),
        "latents": checkpoint.latents.to_dict(),
        "intervals": checkpoint.intervals,
        "sha256": hashlib.sha256(data).hexdigest(),
        "facts": checkpoint.facts,
    }
    _replace(target / WEIGHTS, data)
    _replace(target / DESCRIPTION, (json.dumps(description, indent=1) + "\n").encode())


def _replace(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        raise CheckpointError(f"cannot write '{path}': {error.strerror}.") from None
    finally:
        draft.unlink(missing_ok=True)


def load_checkpoint(folder: str | Path | None = None) -> Checkpoint:
    """Reads the weights of a folder; the shipped ones when it is None.

    Raises:
        CheckpointError: Files are missing, damaged, too large, or of another schema.
    """
    from safetensors import SafetensorError

    source = Path(folder) if folder is not None else SHIPPED
    description = _description(source)
    data = _weights(source, description)
    try:
        return _build(description, data)
    except (KeyError, TypeError, ValueError, RuntimeError, ConfigError, SafetensorError) as error:
        text = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"the weights in '{source}' do not fit their description: {text}. Train again with "
            "`prenet train`."
        ) from None


def _description(source: Path) -> dict[str, Any]:
    path = source / DESCRIPTION
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CheckpointError(f"'{path}' is larger than any description; it is no model.")
        description = read_json(path.read_text(encoding="utf-8"))
    except OSError:
        raise CheckpointError(
            f"'{source}' holds no weights ({DESCRIPTION} is not readable): name a folder that "
            "`prenet train` wrote."
        ) from None
    except (ValueError, RecursionError):
        raise CheckpointError(
            f"'{path}' is damaged: it is no JSON. Copy the weights again."
        ) from None
    if not isinstance(description, dict) or description.get("schema") != SCHEMA:
        found = description.get("schema") if isinstance(description, dict) else None
        raise CheckpointError(
            f"'{source}' is of schema {found!r}, this version reads '{SCHEMA}': train again with "
            "`prenet train`."
        )
    if description.get("features") != feature_schema():
        raise CheckpointError(
            f"'{source}' was trained with other features than this version computes: train again "
            "with `prenet train`, or install the version that wrote it."
        )
    return description


def _weights(source: Path, description: dict[str, Any]) -> bytes:
    path = source / WEIGHTS
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CheckpointError(
                f"'{path}' is larger than {MAX_BYTES} bytes; it is no model of ours."
            )
        data = path.read_bytes()
    except OSError:
        raise CheckpointError(
            f"'{source}' holds no weights ({WEIGHTS} is not readable): name a folder that "
            "`prenet train` wrote."
        ) from None
    if hashlib.sha256(data).hexdigest() != description.get("sha256"):
        raise CheckpointError(
            f"'{path}' is damaged: its sha256 is not the one in {DESCRIPTION}. Copy the weights "
            "again."
        )
    return data


def _build(description: dict[str, Any], data: bytes) -> Checkpoint:
    from safetensors.torch import load

    from prenet_gnn.network.config import ModelConfig
    from prenet_gnn.network.paired import build_network

    tensors = load(data)
    config = ModelConfig.from_dict(description["config"])
    models = []
    for number in range(int(description["members"])):
        model = build_network(config)
        prefix = f"{number}."
        own = {n[len(prefix) :]: t for n, t in tensors.items() if n.startswith(prefix)}
        model.load_state_dict(own)
        models.append(model.eval())
    if not models:
        raise ValueError("no members")
    return Checkpoint(
        tuple(models),
        Latents.from_dict(description["latents"]),
        {name: float(value) for name, value in description["intervals"].items()},
        description["facts"],
    )
