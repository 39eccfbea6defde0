"""How tensors lie in memory along a graph, checked against real strides on the CPU."""

import pytest
import torch
from torch import nn

from tracing import trace
from tracing.costs.memory_format import memory_formats


def inputs_lie(model, x):
    """Whether the first input of every call is channels-last in a real run, by operator."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            name = func.name().split("::")[1].split(".")[0]
            first = args[0] if args else None
            if isinstance(first, torch.Tensor) and first.dim() == 4 and first.shape[1] > 1:
                seen.append((name, first.is_contiguous(memory_format=torch.channels_last)))
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Watch():
        model(x)
    return seen


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 8, 3, groups=8)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        y = torch.relu(self.norm(self.a(x)))
        return self.pool(self.b(y) + 1.0)


@pytest.mark.parametrize("last", [False, True])
def test_convolutions_norms_and_pools_hand_the_layout_on(last):
    model, x = Mixed().eval(), torch.randn(2, 3, 12, 12)
    if last:
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.contiguous(memory_format=torch.channels_last),
        )
    graph = trace(model, (x,), loss="none")
    ours = {
        node.kind: fmt.last
        for node, fmt in zip(graph.nodes, memory_formats(graph.nodes, last), strict=True)
    }
    real = dict(inputs_lie(model, x))
    assert ours["conv"] == real["convolution"] == last
    assert ours["activation"] == real["relu"] == last
    assert ours["pool"] == real["max_pool2d_with_indices"] == last


def test_group_norm_breaks_the_layout():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3))
    graph = trace(model, (torch.randn(2, 3, 8, 8),), loss="none")
    first, norm, second = memory_formats(graph.nodes, True)
    assert first.last and norm.last and norm.converts
    assert not second.last and second.converts
    assert not any(f.last or f.converts for f in memory_formats(graph.nodes, False))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "constant"])
@pytest.mark.parametrize("last", [False, True])
def test_padding_by_values_returns_a_plain_tensor(mode, last):
    class Blur(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.blur = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8)

        def forward(self, x):
            return self.blur(nn.functional.pad(self.conv(x), [1, 1, 1, 1], mode=mode))

    graph = trace(Blur(), (torch.randn(2, 3, 12, 12),), loss="none")
    _, pad, blur = memory_formats(graph.nodes, last)
    converted = last and mode != "constant"
    assert (pad.last, pad.converts) == (last, converted)
    assert (blur.last, blur.converts) == (last and not converted, converted)


def test_a_permuted_input_makes_a_plain_convolution_run_channels_last():
    class Back(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(8, 8)
            self.conv = nn.Conv2d(8, 8, 3)

        def forward(self, x):  # (N, H, W, C)
            return self.conv(self.mix(x).permute(0, 3, 1, 2))

    graph = trace(Back(), (torch.randn(2, 6, 6, 8),), loss="none")
    by_kind = dict(
        zip([n.kind for n in graph.nodes], memory_formats(graph.nodes, False), strict=True)
    )
    assert by_kind["conv"].last and not by_kind["conv"].converts


class Tokens(nn.Module):
    """Mixes positions by a layer over a transposed tensor."""

    def __init__(self):
        super().__init__()
        self.patch, self.norm = nn.Conv2d(3, 8, 4, stride=4), nn.LayerNorm(8)
        self.mix, self.out = nn.Linear(9, 9), nn.Linear(8, 8)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.mix(self.norm(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.out(self.norm(x))
        return self.out(x.unflatten(1, (3, 3)).permute(0, 2, 1, 3)).softmax(dim=-1)


def first_inputs(model, x):
    """Whether the first input is contiguous in a real run, of layers that ask for it, in order."""
    from torch.overrides import TorchFunctionMode

    seen = []
    watched = {nn.functional.linear, nn.functional.layer_norm, torch.Tensor.softmax}

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func in watched:
                seen.append(args[0].is_contiguous())
            return func(*args, **(kwargs or {}))

    with torch.no_grad(), Watch():
        model(x)
    return seen


def test_strided_inputs_are_known_as_a_real_run_has_them():
    model, x = Tokens().eval(), torch.zeros(2, 3, 12, 12)
    nodes = trace(model, (x,), loss="none").nodes
    asked = ("linear", "layer_norm", "softmax")
    lies = memory_formats(nodes, False)
    found = [not f.strided for n, f in zip(nodes, lies, strict=True) if n.kind in asked]
    assert found == first_inputs(model, x)
    assert True in found and False in found
    # one sum is of a plain and of a transposed tensor, the other of two that lie alike
    sums = [f.converts for n, f in zip(nodes, lies, strict=True) if n.kind == "binary"]
    assert sums == [False, True]


@pytest.mark.parametrize("shape", [(2, 9, 8), (2, 8, 9), (2, 3, 3, 8), (2, 3, 8, 3)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "amp_bf16"])
def test_a_strided_linear_layer_is_billed_the_kernels_that_it_runs(shape, bias, precision):
    from torch.profiler import profile

    from prenet_gnn.encoding.fields import WORK
    from prenet_gnn.encoding.precision import lower
    from prenet_gnn.encoding.work import work_of

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8, bias=bias)

        def forward(self, x):
            return self.linear(x if x.shape[-1] == 8 else x.transpose(-1, -2))

    model, x = Layer().eval(), torch.zeros(shape)
    nodes = trace(model, (x,), loss="none").nodes
    index = next(i for i, node in enumerate(nodes) if node.kind == "linear")
    node, low = nodes[index], lower(nodes, precision)[index]
    strided = memory_formats(nodes, False)[index].strided
    assert strided == (shape[-1] != 8)
    more = work_of(node, low, strided) - work_of(node, low)
    amp = torch.autocast("cpu", torch.bfloat16, enabled=precision != "fp32")
    with torch.no_grad(), amp, profile() as run:
        model(x)
    item = 4 if precision == "fp32" else 2
    counts = {event.key: event.count for event in run.key_averages()}
    copies, adds = counts.get("aten::clone", 0), counts.get("aten::add_", 0)
    expected = 2.0 * item * (x.numel() * copies + node.output.numel * adds)
    assert WORK.of(more, "forward_bytes") == expected
    assert WORK.of(more, "forward_kernels") == copies + adds
    assert (copies, adds) == (strided, strided and bias)


class Standardised(nn.Conv2d):
    """Makes its weight anew from its parameter in every step, as BiT's convolutions do."""

    def forward(self, x):
        flat = self.weight.reshape(1, self.out_channels, -1)
        made = torch.nn.functional.batch_norm(flat, None, None, training=True)
        return self._conv_forward(x, made.reshape_as(self.weight), None)


@pytest.mark.parametrize("layer", [nn.Conv2d, Standardised])
def test_a_made_weight_is_plain_so_its_convolution_follows_its_input(layer):
    model = nn.Sequential(nn.Unflatten(1, (3, 12, 12)), layer(3, 8, 3), nn.ReLU()).eval()
    model, x = model.to(memory_format=torch.channels_last), torch.randn(2, 432)
    graph = trace(model, (x,), loss="none")
    lie = dict(zip([n.kind for n in graph.nodes], memory_formats(graph.nodes, True), strict=True))
    real = dict(inputs_lie(model, x))
    # a channels-last weight has its plain input converted, a plain one has not
    assert lie["activation"].last == real["relu"] == (layer is nn.Conv2d)
    assert lie["conv"].converts == (layer is nn.Conv2d)
    images = nn.Sequential(layer(3, 8, 3), nn.ReLU()).eval().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 12, 12).contiguous(memory_format=torch.channels_last)
    graph = trace(images, (x,), loss="none")
    assert memory_formats(graph.nodes, True)[-1].last and dict(inputs_lie(images, x))["relu"]


class Gaps(nn.Module):
    """An image of the tokens beside a class token, as CoaT makes it: channels-last, with gaps."""

    def forward(self, x):  # (N, 1 + H * W, C)
        return x[:, 1:].transpose(1, 2).reshape(len(x), 8, 6, 6)


def test_tokens_beside_others_are_channels_last_with_gaps():
    upsample = nn.Upsample(scale_factor=2, mode="bilinear")
    model, x = nn.Sequential(Gaps(), upsample, nn.ReLU()).eval(), torch.randn(2, 37, 8)
    graph = trace(model, (x,), loss="none")
    lie = dict(zip([n.kind for n in graph.nodes], memory_formats(graph.nodes, False), strict=True))
    assert lie["interpolate"].last
    assert lie["activation"].last and dict(inputs_lie(model, x))["relu"]
    convolved = trace(
        nn.Sequential(Gaps(), nn.Conv2d(8, 8, 3)).eval(), (torch.randn(2, 37, 8),), loss="none"
    )
    conv = memory_formats(convolved.nodes, False)[-1]
    assert conv.last and conv.converts
