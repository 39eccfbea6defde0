"""Forward and backward FLOPs against PyTorch's own counter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from experiments.shared.ledger import Row
from experiments.tracing_tables.common import Study, counted
from tracing import OpGraph, trace, zoo
from tracing.capture.model_call import all_tensors
from tracing.costs.vocab import CONVOLUTIONS

_TORCHVISION = (
    "alexnet convnext_base convnext_large convnext_small convnext_tiny densenet121 densenet161 "
    "densenet169 densenet201 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 "
    "efficientnet_b4 efficientnet_b5 efficientnet_b6 efficientnet_b7 efficientnet_v2_l "
    "efficientnet_v2_m efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5 mnasnet0_75 "
    "mnasnet1_0 mnasnet1_3 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_16gf "
    "regnet_x_1_6gf regnet_x_32gf regnet_x_3_2gf regnet_x_400mf regnet_x_800mf regnet_x_8gf "
    "regnet_y_128gf regnet_y_16gf regnet_y_1_6gf regnet_y_32gf regnet_y_3_2gf regnet_y_400mf "
    "regnet_y_800mf regnet_y_8gf resnet101 resnet152 resnet18 resnet34 resnet50 resnext101_32x8d "
    "resnext101_64x4d resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 "
    "shufflenet_v2_x2_0 squeezenet1_0 squeezenet1_1 swin_b swin_s swin_t swin_v2_b swin_v2_s "
    "swin_v2_t vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32 "
    "vit_h_14 vit_l_16 vit_l_32 wide_resnet101_2 wide_resnet50_2 deeplabv3_resnet50 "
    "deeplabv3_mobilenet_v3_large fcn_resnet50 lraspp_mobilenet_v3_large r3d_18 mc3_18 r2plus1d_18 "
    "mvit_v1_b mvit_v2_s swin3d_t s3d"
)
_TIMM = (
    "beit_base_patch16_224 cait_xxs24_224 coat_tiny convmixer_768_32 crossvit_9_240 cspresnet50 "
    "deit_small_patch16_224 dm_nfnet_f0 dpn68 edgenext_small efficientformer_l1 ghostnet_100 "
    "gmlp_s16_224 hrnet_w18 levit_128 mixer_b16_224 mobilevit_s nest_tiny pit_s_224 poolformer_s12 "
    "pvt_v2_b1 rexnet_100 tnt_s_patch16_224 twins_svt_small volo_d1_224 xcit_nano_12_p16_224"
)
_TRANSFORMERS = (
    "albert bart bert bert-small bloom convbert deberta-v2 distilbert electra ernie gpt2 gpt_neo "
    "gpt_neox layoutlm marian mbart mpnet mpt opt phi qwen2 roberta roformer squeezebert t5 xglm"
)
NAMES = [
    *(f"torchvision:{name}" for name in _TORCHVISION.split()),
    *(f"timm:{name}" for name in _TIMM.split()),
    *(f"transformers:{name}" for name in _TRANSFORMERS.split()),
]
GROUPED = "equal but for the counter's grouped weight gradients"


def seen_by_counter(
    model: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[int, int]:
    """Forward and backward FLOPs that the counter sees, on the device of the model."""
    try:
        return _seen(model, args, kwargs)
    except RuntimeError as error:
        if "meta tensors" not in str(error):
            raise
    # code that reads values, but knows that a fake tensor has none
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    state = {name: mode.from_tensor(t) for name, t in model.named_parameters()}
    state |= {name: mode.from_tensor(t) for name, t in model.named_buffers()}
    args, kwargs = tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
    with mode:
        return _seen(partial(functional_call, model, state), (args, kwargs), {})


def _seen(
    model: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[int, int]:
    with FlopCounterMode(display=False) as forward:
        tensors = all_tensors(model(*args, **kwargs))
    # by identity: a model that returns one tensor twice is differentiated once
    unique = {id(t): t for t in tensors if t.requires_grad and t.is_floating_point()}
    loss = torch.stack([t.float().sum() for t in unique.values()]).sum()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def groups_excess(graph: OpGraph) -> int:
    """What the counter bills too much: grouped weight gradients are not divided by the groups."""
    excess = 0
    for node, cost in zip(graph.nodes, graph.node_costs, strict=True):
        if node.kind in CONVOLUTIONS:
            groups = int(node.attrs.get("groups", 1) or 1)
            # a weight that is computed (standardised) needs its gradient as well
            needed = node.differentiable and node.needs_grad[1]
            excess += (groups - 1) * cost.forward_flops * needed
    return excess


def row(name: str) -> Row:
    """Both counts of one model."""
    length = 128 if name.startswith("transformers") else None
    model, args, kwargs = zoo.build(name, batch_size=2, mode="train", seq_len=length)
    graph = trace(model, args, kwargs, loss="none", attention_backend="math", backend="record")
    forward, backward = seen_by_counter(model, args, kwargs)
    ours, excess = graph.total_backward_flops, groups_excess(graph)
    if (graph.total_flops, ours) == (forward, backward):
        verdict = "equal"
    elif (graph.total_flops, ours + excess) == (forward, backward):
        verdict = GROUPED
    else:
        verdict = "differs"
    return {
        "verdict": verdict,
        "forward": graph.total_flops,
        "counter_forward": forward,
        "backward": ours,
        "counter_backward": backward,
    }


STUDY = Study("flops", lambda: NAMES, row, partial(counted, column="verdict"))
