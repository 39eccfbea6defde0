"""Which models can be traced."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

from experiments.shared.averages import grouped
from experiments.shared.ledger import Row
from experiments.tracing_tables.common import Study, ledger
from experiments.tracing_tables.kinds import all_kinds
from experiments.tracing_tables.kinds.libraries import DIFFUSION, library_model
from tracing import OpGraph, trace, zoo

TRANSFORMERS = (
    "albert align altclip aria_text bamba bart beit bert bert-small big_bird bit blenderbot-small "
    "blip_vision_model bloom canine chinese_clip clap clip clipseg codegen cohere "
    "conditional_detr convbert convnext convnextv2 cvt data2vec-text deberta deberta-v2 "
    "deepseek_v3 deit detr dinov2 distilbert dpt efficientnet electra encodec ernie falcon "
    "falcon_mamba flava_text_model fnet focalnet funnel gemma gemma2 gemma3_text git glm glpn "
    "gpt2 gpt_bigcode gpt_neo gpt_neox gptj granite groupvit hiera hubert ibert imagegpt layoutlm "
    "led levit lfm2 llama longformer longt5 luke lxmert mamba mamba2 marian mbart megatron-bert "
    "mistral mixtral mobilebert mobilenet_v2 mobilevit mpnet mpt mvp nystromformer olmo olmoe opt "
    "owlvit pegasus perceiver persimmon phi phi3 plbart poolformer prophetnet pvt qwen2 qwen2_moe "
    "qwen3 regnet rembert resnet roberta roformer rwkv segformer siglip speech_to_text splinter "
    "squeezebert stablelm starcoder2 swin swinv2 t5 timesformer umt5 videomae vilt vit vit_mae "
    "vivit wav2vec2 wavlm whisper xglm xlnet yolos"
).split()
# Short sequences, small images and few layers: what is tested is whether a model can be traced.
SEQUENCE = 64
# Those of sound take their default: their first layers merge hundreds of samples.
SOUND = ("encodec", "hubert", "speech_to_text", "wav2vec2", "wavlm")
LENGTHS: dict[str, int | None] = {**dict.fromkeys(SOUND), "owlvit": 16, "vilt": 40}
DETECTION_SIZE = 320
LAYERS = 3
# Settings of transformers that say how many equal layers a model has.
DEPTHS = (
    "num_hidden_layers num_layers encoder_layers decoder_layers n_layer n_layers "
    "num_encoder_layers num_decoder_layers decoder_num_hidden_layers"
).split()
# Models of libraries are recorded, which is fast; one in so many is exported as well.
EXPORTED = {"torchvision": 10, "transformers": 10, "timm": 40}


def timm_names() -> list[str]:
    """All names of timm in the measured data that the installed timm can build."""
    from prenet_gnn.data.tables import find_data_dir, read_measurements

    rows = read_measurements(find_data_dir(None))
    wanted = set(rows.loc[rows["library"] == "timm", "model"].astype(str))
    known = {name.partition(":")[2] for name in zoo.names("timm:")}
    return [f"timm:{name}" for name in sorted(wanted & known)]


def keys() -> list[str]:
    """All models, group by group; those of timm need the measured data or an earlier table."""
    try:
        names = timm_names()
    except Exception:
        known = (row["model"] for row in ledger("coverage").rows)
        names = [name for name in known if name.startswith("timm:")]
    from_zoo = [*zoo.names("torchvision:"), *(f"transformers:{name}" for name in TRANSFORMERS)]
    return [*all_kinds(), *DIFFUSION, *from_zoo, *names]


def row(key: str) -> Row:
    """Traces one model, by both backends where it is not one of many."""
    group, _, name = key.partition(":")
    if sum(name.encode()) % EXPORTED.get(group, 1):
        return _traced(key, ("record",))
    return _traced(key, ("record", "export"))


def _traced(key: str, backends: tuple[str, ...]) -> Row:
    model, args, kwargs = build(key)
    graphs: dict[str, OpGraph] = {}
    seconds: dict[str, float] = {}
    for backend in backends:
        start = process_time()
        graphs[backend] = trace(model, args, kwargs, backend=backend, unknown_ops="ignore")
        seconds[backend] = round(process_time() - start, 2)
    graph = graphs[backends[-1]]
    costs = {(g.total_flops, g.total_backward_flops) for g in graphs.values()}
    return {
        "nodes": len(graph.nodes),
        "forward_flops": graph.total_flops,
        "backward_flops": graph.total_backward_flops,
        "parameters": graph.total_params,
        "unknown_ops": " ".join(graph.unknown_ops),
        "upper_bounds": ", ".join(graph.meta.get("upper_bounds", [])),
        "how": "recorded run" if graph.meta.get("recorded_run") else backends[-1],
        "backends_agree": {1: "yes", 2: "no"}[len(costs)] if len(backends) > 1 else "not compared",
        **{f"{backend}_s": seconds.get(backend, "") for backend in ("record", "export")},
    }


def build(key: str) -> tuple[Any, Any, Any]:
    """The model of a row with its inputs."""
    kinds = all_kinds()
    if key in kinds:
        return kinds[key]()
    group, _, name = key.partition(":")
    if key in DIFFUSION:
        return library_model(name)
    if group == "transformers":
        return small(name)
    detects = any(word in name for word in ("rcnn", "retinanet", "fcos", "ssd"))
    size = DETECTION_SIZE if group == "torchvision" and detects else None
    return zoo.build(key, batch_size=2, mode="train", image_size=size)


def small(name: str, batch_size: int = 2) -> tuple[Any, Any, Any]:
    """A model of transformers with few layers, or as it is where it has no such setting."""
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "mode": "train",
        "seq_len": LENGTHS.get(name, SEQUENCE),
    }
    import transformers

    if name in transformers.CONFIG_MAPPING:
        config = transformers.AutoConfig.for_model(name)
        depths = {k: LAYERS for k in DEPTHS if _counts_layers(config, k)}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.json"
            path.write_text(json.dumps({"model_type": name, **depths}))
            try:
                return zoo.build(f"transformers:{path}", **options)
            except zoo.ZooError:
                pass  # its layers are listed one by one
    return zoo.build(f"transformers:{name}", **options)


def _counts_layers(config: Any, name: str) -> bool:
    """Whether a setting says how many layers there are, and nothing else counts on that."""
    stages = name in (getattr(config, "attribute_map", None) or {})
    taken = getattr(config, "backbone_out_indices", None) is not None
    return isinstance(getattr(config, name, None), int) and not (stages or taken)


def groups(table: list[Row]) -> dict[str, list[Row]]:
    """Rows by the part of the name before the colon."""
    return grouped(table, lambda row: row["model"].partition(":")[0])


def summary(table: list[Row]) -> list[str]:
    """How many models of each group were traced."""
    lines = []
    for name, rows in groups(table).items():
        traced = sum(not each["error"] for each in rows)
        lines.append(f"{name}: {traced} of {len(rows)} ({traced / len(rows):.1%})")
    return lines


STUDY = Study(
    "coverage", keys, row, summary, limit_s=240, packages=("diffusers", "peft", "torch-geometric")
)
