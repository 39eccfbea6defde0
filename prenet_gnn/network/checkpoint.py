"""Weights on disk: safetensors beside a JSON description; nothing is unpickled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prenet_gnn.common.files import read_json, write_whole
from prenet_gnn.encoding.fields import schema
from prenet_gnn.encoding.latents import Latents
from prenet_gnn.errors import CheckpointError, ConfigError
from prenet_gnn.network.interval import Intervals

if TYPE_CHECKING:
    from prenet_gnn.network.config import NetworkConfig
    from prenet_gnn.network.network import TimeGNN
    from prenet_gnn.network.paired import PairedGNN

SCHEMA = "prenet-weights-2"
WEIGHTS, DESCRIPTION = "weights.safetensors", "model.json"
MAX_BYTES = 200 * 2**20
SHIPPED = Path(__file__).resolve().parents[1] / "pretrained"


@dataclass(frozen=True)
class Facts:
    """What is known of weights: the model card in short.

    Attributes:
        rows: Measured iterations that they were fitted to.
        timed: Devices with measured iterations, as `encoding.latents.device_key` writes them; None
            where nobody noted them.
        sources: Rows by source.
        operator_sources: Operators timed alone, by source.
        devices: Names of the devices.
        largest_log_seconds: Logarithm of the longest iteration.
        seen_graphs: The graphs of training in short, as `predictor.outside.Seen` reads them.
        run: Settings of the fit.
        loss: Last loss of every network.
        versions: Software of the fit.
        licences: Licence of every source.
        accuracy: Scores on held-out rows, and the command that measured them.
    """

    rows: int = 0
    timed: tuple[str, ...] | None = None
    sources: Mapping[str, int] = field(default_factory=dict)
    operator_sources: Mapping[str, int] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    largest_log_seconds: float | None = None
    seen_graphs: Mapping[str, Any] | None = None
    run: Any = None
    loss: tuple[float | None, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    licences: Mapping[str, str] = field(default_factory=dict)
    accuracy: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Facts:
        """Reads what `to_dict` gave.

        Raises:
            ValueError: A name is not known.
        """
        unknown = data.keys() - {each.name for each in fields(cls)}
        if unknown:
            raise ValueError(f"unknown facts: {', '.join(sorted(unknown))}")
        listed = {
            name: tuple(data[name]) for name in ("timed", "devices", "loss") if data.get(name)
        }
        return cls(**{**data, **listed})

    def to_dict(self) -> dict[str, Any]:
        """The facts by name, ready for JSON; what is not known is left out."""
        return {name: value for name, value in asdict(self).items() if value not in (None, {}, ())}


@dataclass(frozen=True)
class Checkpoint:
    """An ensemble of networks and what is known about them.

    Attributes:
        models: Networks of one configuration that are averaged.
        config: Their blocks.
        latents: Names of devices, hosts and frameworks in the latent tables.
        intervals: How wide intervals are.
        facts: What they were fitted to, with what, and how good they are.
    """

    models: tuple[TimeGNN | PairedGNN, ...]
    config: NetworkConfig
    latents: Latents
    intervals: Intervals = field(default_factory=Intervals)
    facts: Facts = field(default_factory=Facts)


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
        "fields": schema(),
        "members": len(checkpoint.models),
        "config": checkpoint.config.to_dict(),
        "latents": checkpoint.latents.to_dict(),
        "intervals": checkpoint.intervals.to_dict(),
        "sha256": hashlib.sha256(data).hexdigest(),
        "facts": checkpoint.facts.to_dict(),
    }
    _replace(target / WEIGHTS, data)
    _replace(target / DESCRIPTION, (json.dumps(description, indent=1) + "\n").encode())


def _replace(path: Path, data: bytes) -> None:
    try:
        write_whole(path, data)
    except OSError as error:
        raise CheckpointError(f"cannot write '{path}': {error.strerror}.") from None


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
    _check_fields(source, description.get("fields"))
    return description


def _check_fields(source: Path, found: Any) -> None:
    """Refuses weights whose columns have other names than those that are computed now."""
    found = found if isinstance(found, dict) else {}
    for table, names in schema().items():
        before = found.get(table)
        if before == names:
            continue
        differing = sorted(set(before if isinstance(before, list) else ()) ^ set(names))
        what = f"({', '.join(map(str, differing[:4]))})" if differing else "in another order"
        raise CheckpointError(
            f"'{source}' was trained with other columns '{table}' than this version computes "
            f"{what}: train again with `prenet train`, or install the version that wrote it."
        )


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

    from prenet_gnn.network.config import NetworkConfig
    from prenet_gnn.network.latents import LatentSizes
    from prenet_gnn.network.paired import build_network

    tensors = load(data)
    config = NetworkConfig.from_dict(description["config"])
    latents = Latents.from_dict(description["latents"])
    models = []
    for number in range(int(description["members"])):
        model = build_network(config, LatentSizes.of(latents))
        prefix = f"{number}."
        own = {n[len(prefix) :]: t for n, t in tensors.items() if n.startswith(prefix)}
        model.load_state_dict(own)
        models.append(model.eval())
    if not models:
        raise ValueError("no members")
    return Checkpoint(
        tuple(models),
        config,
        latents,
        Intervals.from_dict(description["intervals"]),
        Facts.from_dict(description["facts"]),
    )
