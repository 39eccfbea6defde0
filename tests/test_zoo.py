"""The model zoo: what each kind of spec builds, old names, and errors a user can mend."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tracing import zoo
from tracing.errors import TraceError

MILLION = 1_000_000


def _parameters(model: torch.nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize(
    ("spec", "shape", "parameters"),
    [
        ("timm:resnet18", (4, 3, 224, 224), 11_689_512),
        ("timm:vit_tiny_patch16_384", (4, 3, 384, 384), None),
        ("torchvision:squeezenet1_1", (4, 3, 224, 224), 1_235_496),
        ("torchvision:inception_v3", (4, 3, 299, 299), 27_161_264),
        ("torchvision:lraspp_mobilenet_v3_large", (4, 3, 520, 520), None),
        ("torchvision:r3d_18", (4, 3, 16, 112, 112), None),
        # its constructor reads the values of tensors
        ("torchvision:regnet_y_400mf", (4, 3, 224, 224), 4_344_144),
    ],
)
def test_vision_models_are_on_meta(spec: str, shape: Any, parameters: int | None) -> None:
    model, args, kwargs = zoo.build(spec, batch_size=4)
    assert tuple(args[0].shape) == shape and kwargs == {} and model.training
    tensors = [*model.parameters(), *model.buffers(), *args]
    assert {each.device.type for each in tensors} == {"meta"}
    assert parameters is None or _parameters(model) == parameters
    assert model(*args) is not None


@pytest.mark.parametrize(
    ("name", "current", "millions", "size"),
    [
        ("gluon_resnet18_v1b", "resnet", 11.69, 224),
        ("ig_resnext101_32x16d", "resnet", 194.03, 224),
        ("ig_resnext101_32x48d", "resnet", 828.41, 224),
        ("densenet121d", "densenet", 8.0, 224),
        ("semobilevit_s", "mobilevit", 5.74, 256),
        ("convnext_tiny_384_in22ft1k", "convnext", 28.59, 384),
        ("vit_base2_patch32_256", "vision_transformer", 119.46, 256),
        ("vit_base_patch32_224_sam", "vision_transformer", 88.22, 224),
        ("resnetv2_50d_evob", "resnetv2", 25.59, 224),
        ("swin_v2_cr_tiny_224", "swin_transformer_v2_cr", 28.33, 224),
    ],
)
def test_old_timm_names_give_the_old_network(
    name: str, current: str, millions: float, size: int
) -> None:
    model, (images,), _ = zoo.build(f"timm:{name}", batch_size=1)
    assert round(_parameters(model) / MILLION, 2) == pytest.approx(millions, abs=0.011)
    assert tuple(images.shape[-2:]) == (size, size)
    assert zoo.module_family(f"timm:{name}") == current


def test_image_size_reaches_models_of_fixed_size() -> None:
    model, (images,), _ = zoo.build("timm:vit_tiny_patch16_224", 2, image_size=160, mode="infer")
    assert model(images).shape == (2, 1000) and not model.training
    model, (images,), _ = zoo.build("timm:resnet18", 2, image_size=96)
    assert images.shape == (2, 3, 96, 96)


def test_attention_choice_lasts_for_one_build() -> None:
    import timm.layers

    before = timm.layers.use_fused_attn()
    eager, _, _ = zoo.build("timm:vit_tiny_patch16_224", 1, attention="eager")
    fused, _, _ = zoo.build("timm:vit_tiny_patch16_224", 1, attention="sdpa")
    assert eager.blocks[0].attn.fused_attn is False  # type: ignore[index, union-attr]
    assert fused.blocks[0].attn.fused_attn is True  # type: ignore[index, union-attr]
    assert timm.layers.use_fused_attn() == before
    bert, _, _ = zoo.build("transformers:bert-tiny", 1, attention="eager")
    assert bert.config._attn_implementation == "eager"  # type: ignore[union-attr]


def test_detection_models_come_with_targets_on_the_cpu() -> None:
    model, args, _ = zoo.build(
        "torchvision:fasterrcnn_mobilenet_v3_large_320_fpn", batch_size=2, image_size=64
    )
    images, targets = args
    assert len(images) == len(targets) == 2 and images[0].device.type == "cpu"
    assert set(targets[0]) == {"boxes", "labels"}
    model, args, _ = zoo.build(
        "torchvision:fasterrcnn_mobilenet_v3_large_320_fpn", 1, image_size=64, mode="infer"
    )
    assert len(args) == 1 and not model.training


@pytest.mark.parametrize(
    ("spec", "class_name", "inputs"),
    [
        ("bert-tiny", "BertForMaskedLM", {"input_ids": (2, 32), "labels": (2, 32)}),
        (
            "bert-tiny@BertForQuestionAnswering",
            "BertForQuestionAnswering",
            dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (2, 32))
            | dict.fromkeys(("start_positions", "end_positions"), (2,)),
        ),
        ("t5-small", "T5ForConditionalGeneration", {"input_ids": (2, 32), "labels": (2, 32)}),
        (
            "vit-tiny",
            "ViTForImageClassification",
            {"pixel_values": (2, 3, 224, 224), "labels": (2,)},
        ),
        ("GPT2LMHeadModel", "GPT2LMHeadModel", {"input_ids": (2, 32), "labels": (2, 32)}),
    ],
)
def test_transformers_get_the_inputs_of_their_class(
    spec: str, class_name: str, inputs: dict[str, tuple[int, ...]]
) -> None:
    model, args, kwargs = zoo.build(f"transformers:{spec}", batch_size=2, seq_len=32)
    assert type(model).__name__ == class_name and args == ()
    assert {key: tuple(value.shape) for key, value in kwargs.items()} == inputs
    assert {each.device.type for each in model.parameters()} == {"meta"}
    _, _, kwargs = zoo.build(f"transformers:{spec}", batch_size=2, seq_len=32, mode="infer")
    assert "labels" not in kwargs and "start_positions" not in kwargs


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bert-base-uncased", 109_514_298),
        ("gpt2-large", 774_030_080),
        ("facebook/opt-1.3b", 1_315_758_080),
        ("meta-llama/Llama-2-7b-hf", 6_738_415_616),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-405b", 405_853_388_800),
        ("mistral-7b", 7_241_732_096),
        ("t5-base", 222_903_552),
    ],
)
def test_named_sizes_have_the_published_parameters(name: str, parameters: int) -> None:
    model, _, _ = zoo.build(f"transformers:{name}", batch_size=1, seq_len=8, mode="infer")
    assert _parameters(model) == parameters
    assert getattr(model.config, "use_cache", False) is False  # type: ignore[union-attr]


def test_neusight_bert_has_another_head_per_mode() -> None:
    train, _, kwargs = zoo.build("transformers:bert_large", 1, seq_len=8)
    infer, _, _ = zoo.build("transformers:bert_large", 1, seq_len=8, mode="infer")
    assert type(train).__name__ == "BertForPreTraining" and "next_sentence_label" in kwargs
    assert type(infer).__name__ == "BertForSequenceClassification"


@pytest.mark.parametrize(
    ("model_type", "wanted"),
    [
        ("clap", {"input_ids": (2, 9), "input_features": (2, 1, 1024, 64)}),
        ("lxmert", {"visual_feats": (2, 36, 2048), "visual_pos": (2, 36, 4)}),
        ("git", {"pixel_values": (2, 3, 224, 224), "labels": (2, 9)}),
        ("perceiver", {"inputs": (2, 9), "labels": (2, 2048)}),
        ("chinese_clip", {"input_ids": (2, 9), "pixel_values": (2, 3, 224, 224)}),
        ("blip_vision_model", {"pixel_values": (2, 3, 384, 384)}),
        # text alone is enough for a chat model, although it takes images as well
        ("llava", {"input_ids": (2, 9)}),
    ],
)
def test_inputs_of_several_kinds(model_type: str, wanted: dict[str, tuple[int, ...]]) -> None:
    model, args, kwargs = zoo.build(f"transformers:{model_type}", batch_size=2, seq_len=9)
    shapes = {name: tuple(each.shape) for name, each in kwargs.items()}
    assert shapes | wanted == shapes and args == ()
    assert ("pixel_values" in shapes) == ("pixel_values" in wanted)
    assert {each.device.type for each in model.parameters()} == {"meta"}


def test_image_positions_do_not_limit_text() -> None:
    # its images have 50 positions, its text 512
    _, _, kwargs = zoo.build("transformers:chinese_clip", batch_size=1, seq_len=400)
    assert kwargs["input_ids"].shape == (1, 400)
    with pytest.raises(zoo.ZooError, match="512 positions"):
        zoo.build("transformers:chinese_clip", batch_size=1, seq_len=600)


def test_models_that_read_values_are_real() -> None:
    model, _, kwargs = zoo.build("transformers:encodec", batch_size=2, seq_len=640)
    assert kwargs["input_values"].shape == (2, 1, 640)
    tensors = (*model.parameters(), *kwargs.values())
    assert {each.device.type for each in tensors} == {"cpu"}


def test_switch_layer_with_fixed_shapes_gives_the_same_result() -> None:
    import transformers

    from tracing.zoo.transformers_experts import fix_shapes

    torch.manual_seed(0)
    config = transformers.SwitchTransformersConfig(
        d_model=16,
        d_kv=4,
        d_ff=32,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=2,
        num_experts=4,
        expert_capacity=3,
        num_sparse_encoder_layers=1,
        num_sparse_decoder_layers=1,
        vocab_size=50,
        use_cache=False,
    )
    model = transformers.SwitchTransformersModel(config).eval()
    tokens = torch.randint(0, 50, (2, 16))
    with torch.no_grad():
        before = model(input_ids=tokens, decoder_input_ids=tokens).last_hidden_state
        fix_shapes(model)
        after = model(input_ids=tokens, decoder_input_ids=tokens).last_hidden_state
    torch.testing.assert_close(after, before)


def test_config_file_chooses_class_and_size(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    values = {
        "model_type": "bert",
        "architectures": ["BertForTokenClassification"],
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 96,
        "dtype": "bfloat16",
        "use_cache": True,
    }
    path.write_text(json.dumps(values))
    model, _, kwargs = zoo.build(f"transformers:{path}", batch_size=3, seq_len=16)
    assert type(model).__name__ == "BertForTokenClassification"
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    assert kwargs["labels"].shape == (3, 16) and model(**kwargs).loss.shape == ()
    assert zoo.module_family(f"transformers:{path}") == "bert"
    path.write_text(json.dumps({"hidden_size": 64}))
    with pytest.raises(zoo.ZooError, match="no 'model_type'"):
        zoo.build(f"transformers:{path}")
    path.write_text("{")
    with pytest.raises(zoo.ZooError, match="not readable JSON"):
        zoo.build(f"transformers:{path}")


FACTORIES = """
import torch
from torch import nn

def whole(batch_size, mode="train"):
    assert mode in ("train", "infer")
    return nn.Linear(8, 2), (torch.zeros(batch_size, 8),), {}

def pair():
    return nn.Linear(8, 2), torch.zeros(5, 8)

def alone(batch_size=1):
    return nn.Linear(8, 2)

def example_inputs(batch_size):
    return (torch.zeros(batch_size, 8),)

def reads_values():
    width = int(torch.linspace(0, 8, 2)[-1].item())
    return nn.Linear(width, 2), (torch.zeros(3, width),)

def breaks():
    return nn.Linear(8, "two")

def wrong():
    return "model"
"""


@pytest.mark.parametrize(
    ("factory", "batch", "device"),
    [("whole", 6, "meta"), ("pair", 5, "meta"), ("alone", 6, "meta"), ("reads_values", 3, "cpu")],
)
def test_user_file(tmp_path: Path, factory: str, batch: int, device: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FACTORIES)
    model, args, kwargs = zoo.build(f"{path}:{factory}", batch_size=6, mode="infer")
    assert args[0].shape == (batch, 8) and kwargs == {} and not model.training
    assert {each.device.type for each in (*model.parameters(), *args)} == {device}
    assert zoo.module_family(f"{path}:{factory}") == "mine"


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (":breaks", r"mine\.py, line 23: TypeError"),
        (":wrong", r"must return model, \(model, args\)"),
        (":hole", r"no function 'hole'.*'whole'"),
        ("", "names no function"),
    ],
)
def test_user_file_errors(tmp_path: Path, tail: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FACTORIES)
    with pytest.raises(zoo.ZooError, match=message):
        zoo.build(f"{path}{tail}")
    path.write_text("def alone(:\n")
    with pytest.raises(zoo.ZooError, match="SyntaxError" if tail else message):
        zoo.build(f"{path}{tail}")


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("timm:resnet_18", {}, r"no model 'resnet_18'.*'resnet18'"),
        ("timm:cspresnext50_iabn", {}, "inplace_abn"),
        ("torchvision:resnet_18", {}, r"no model.*'resnet18'"),
        ("torchvision:quantized_resnet18", {}, "torchvision:resnet18"),
        ("transformers:bert-lage", {}, r"'bert-lage'.*'bert-large'"),
        ("transformers:nowhere.json", {}, "does not exist"),
        ("transformers:bert-tiny", {"seq_len": 513}, "longer than the 512 positions"),
        ("tim:resnet18", {}, r"'tim' is not known.*'timm'"),
        ("resnet18", {}, "names no library"),
        ("", {}, "empty"),
        ("timm:", {}, "names no model"),
        ("nowhere.py:f", {}, "does not exist"),
        ("timm:resnet18", {"batch_size": 0}, "batch_size must be a whole number"),
        ("timm:resnet18", {"batch_size": 2.5}, "batch_size must be a whole number"),
        ("timm:resnet18", {"image_size": -1}, "image_size"),
        ("timm:resnet18", {"mode": "test"}, "Allowed: train, infer"),
        ("timm:resnet18", {"attention": "flash"}, "Allowed: eager, sdpa"),
    ],
)
def test_errors_are_one_clear_line(spec: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(zoo.ZooError, match=message) as caught:
        zoo.build(spec, **options)
    assert "\n" not in str(caught.value) and isinstance(caught.value, TraceError)


def test_names_and_families() -> None:
    listed = zoo.names("timm:resnet1")
    assert "timm:resnet18" in listed and all(each.startswith("timm:resnet1") for each in listed)
    assert "torchvision:vit_b_16" in zoo.names("torchvision:")
    assert "transformers:llama-3-8b" in zoo.names("transformers:")
    assert zoo.module_family("torchvision:deeplabv3_resnet50") == "segmentation.deeplabv3"
    assert zoo.module_family("transformers:gpt2-xl") == "gpt2"


def test_build_leaves_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    zoo.build("transformers:bert-tiny", batch_size=1, seq_len=8)
    assert "HF_HUB_OFFLINE" not in os.environ
