"""Single layers and operators of PyTorch as models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

# A model with its positional and its named inputs.
Built = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
ROWS, TEXT, IMAGE, VOLUME = (4, 16), (2, 6, 16), (2, 8, 12, 12), (2, 4, 6, 8, 8)


class Fn(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any], **modules: nn.Module) -> None:
        """Keeps the function and the modules that it uses."""
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function with the model as first argument."""
        return self.function(self, *args, **kwargs)


def on(shape: tuple[int, ...], *layers: Callable[[], nn.Module]) -> Callable[[], Built]:
    """Layers one after the other, with an input of that shape."""
    return lambda: (nn.Sequential(*(layer() for layer in layers)), (torch.randn(shape),), {})


def call(function: Callable[..., Any], *shapes: tuple[int, ...], **modules: Any) -> Any:
    """A function on inputs of these shapes; the modules are made anew for each model."""

    def build() -> Built:
        made = {name: make() for name, make in modules.items()}
        return Fn(function, **made), tuple(torch.randn(shape) for shape in shapes), {}

    return build


def linear() -> nn.Linear:
    """A layer as wide as the inputs."""
    return nn.Linear(16, 16)


def _packed(self: Any, x: torch.Tensor) -> Any:
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    packed = pack_padded_sequence(x, torch.tensor([6, 4]), batch_first=True)
    return pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]


def _cell(self: Any, x: torch.Tensor) -> torch.Tensor:
    state = x.new_zeros(x.shape[0], 8)
    for step in range(x.shape[1]):
        state = self.cell(x[:, step], state)
    return state


def _lstm_cell(self: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = cell = x.new_zeros(x.shape[0], 8)
    for step in range(x.shape[1]):
        hidden, cell = self.cell(x[:, step], (hidden, cell))
    return hidden


def _rotary(self: Any, x: torch.Tensor) -> torch.Tensor:
    turned = torch.view_as_complex(self.lin(x).float().reshape(*x.shape[:-1], -1, 2))
    angles = torch.polar(torch.ones(x.shape[1], 8), torch.arange(x.shape[1])[:, None] * 0.1)
    return torch.view_as_real(turned * angles.to(x.device)).flatten(2)


def _spectral(self: Any, x: torch.Tensor) -> torch.Tensor:
    spectrum = torch.fft.rfft2(self.conv(x))
    weight = torch.ones(8, 8, dtype=torch.complex64, device=x.device)
    mixed = torch.einsum("bihw,io->bohw", spectrum, weight)
    return torch.fft.irfft2(mixed, s=x.shape[-2:])


def _grid(self: Any, x: torch.Tensor) -> torch.Tensor:
    theta = self.lin(x.mean((2, 3))).view(-1, 2, 3)
    return F.grid_sample(x, F.affine_grid(theta, list(x.shape), False), align_corners=False)


def _unfolded(self: Any, x: torch.Tensor) -> torch.Tensor:
    return F.fold(self.lin(F.unfold(x, 3).transpose(1, 2)).transpose(1, 2), (12, 12), 3)


def _unpooled(self: Any, x: torch.Tensor) -> torch.Tensor:
    pooled, where = F.max_pool2d(self.conv(x), 2, return_indices=True)
    return F.max_unpool2d(pooled, where, 2)


def _attended(self: Any, x: torch.Tensor) -> Any:
    return self.attention(x, x, x, need_weights=True, average_attn_weights=False)


def _grouped_query(self: Any, x: torch.Tensor) -> torch.Tensor:
    query = self.lin(x).view(2, 6, 4, 4).transpose(1, 2)
    key = self.small(x).view(2, 6, 2, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(query, key, key, is_causal=True, enable_gqa=True)


def _stft(self: Any, x: torch.Tensor) -> torch.Tensor:
    window = torch.hann_window(16, device=x.device)
    return self.lin(torch.stft(x, 16, 8, window=window, return_complex=True).abs()[:, :8].mT)


def _encoder(**options: Any) -> Callable[[], nn.Module]:
    return lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **options)


LAYERS: dict[str, Callable[[], Built]] = {
    "RNN": on(TEXT, lambda: nn.RNN(16, 8, nonlinearity="relu", batch_first=True)),
    "LSTM": on(TEXT, lambda: nn.LSTM(16, 8, 2, batch_first=True, dropout=0.1)),
    "LSTM, projected": on(TEXT, lambda: nn.LSTM(16, 8, batch_first=True, proj_size=4)),
    "GRU": on(TEXT, lambda: nn.GRU(16, 8, bidirectional=True, batch_first=True)),
    "RNNCell": call(_cell, TEXT, cell=lambda: nn.RNNCell(16, 8)),
    "LSTMCell": call(_lstm_cell, TEXT, cell=lambda: nn.LSTMCell(16, 8)),
    "GRUCell": call(_cell, TEXT, cell=lambda: nn.GRUCell(16, 8)),
    "packed sequence": call(_packed, TEXT, rnn=lambda: nn.LSTM(16, 8, batch_first=True)),
    "MultiheadAttention": call(
        _attended, TEXT, attention=lambda: nn.MultiheadAttention(16, 2, batch_first=True)
    ),
    "MultiheadAttention, two widths": call(
        lambda s, x, y: s.attention(x, y, y, need_weights=False)[0],
        TEXT,
        (2, 5, 12),
        attention=lambda: nn.MultiheadAttention(16, 2, kdim=12, vdim=12, batch_first=True),
    ),
    "grouped-query attention": call(
        _grouped_query, TEXT, lin=linear, small=lambda: nn.Linear(16, 8)
    ),
    "TransformerEncoderLayer": on(TEXT, _encoder(norm_first=True)),
    "TransformerEncoderLayer, evaluation": on(TEXT, lambda: _encoder()().eval()),
    "TransformerDecoderLayer": call(
        lambda s, x, y: s.layer(x, y, tgt_is_causal=True, tgt_mask=s.mask(6)),
        TEXT,
        TEXT,
        layer=lambda: nn.TransformerDecoderLayer(16, 2, 32, batch_first=True),
        mask=lambda: Fn(lambda _, n: nn.Transformer.generate_square_subsequent_mask(n)),
    ),
    "Transformer": call(
        lambda s, x, y: s.net(x, y),
        TEXT,
        TEXT,
        net=lambda: nn.Transformer(16, 2, 1, 1, 32, batch_first=True),
    ),
    "Conv1d": on(TEXT, lambda: nn.Conv1d(6, 8, 3, padding=2, dilation=2), nn.ReLU),
    "Conv2d, grouped": on(IMAGE, lambda: nn.Conv2d(8, 16, 3, groups=4)),
    "Conv2d, depthwise": on(IMAGE, lambda: nn.Conv2d(8, 8, 3, groups=8), nn.ReLU),
    "Conv2d, circular": on(IMAGE, lambda: nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular")),
    "Conv2d, same": on(IMAGE, lambda: nn.Conv2d(8, 8, 3, padding="same", dilation=2)),
    "Conv3d": on(VOLUME, lambda: nn.Conv3d(4, 8, 3, stride=2), lambda: nn.BatchNorm3d(8)),
    "ConvTranspose1d": on(TEXT, lambda: nn.ConvTranspose1d(6, 4, 3, 2)),
    "ConvTranspose2d, grouped": on(IMAGE, lambda: nn.ConvTranspose2d(8, 8, 3, 2, groups=2)),
    "ConvTranspose3d": on(VOLUME, lambda: nn.ConvTranspose3d(4, 2, 2, 2)),
    "Bilinear": call(lambda s, x, y: s.f(x, y), TEXT, TEXT, f=lambda: nn.Bilinear(16, 16, 4)),
    "EmbeddingBag": lambda: (
        nn.Sequential(nn.EmbeddingBag(32, 16), linear()),
        (torch.zeros(2, 6, dtype=torch.long),),
        {},
    ),
    "AdaptiveLogSoftmax": call(
        lambda s, x: s.head.log_prob(x.mean(1)),
        TEXT,
        head=lambda: nn.AdaptiveLogSoftmaxWithLoss(16, 32, [8, 16]),
    ),
    "GroupNorm": on(IMAGE, lambda: nn.GroupNorm(2, 8), lambda: nn.InstanceNorm2d(8)),
    "RMSNorm": on(TEXT, lambda: nn.RMSNorm(16), lambda: nn.LayerNorm(16)),
    "LocalResponseNorm": on(IMAGE, lambda: nn.LocalResponseNorm(2), lambda: nn.Conv2d(8, 8, 1)),
    "pools": on(
        IMAGE, lambda: nn.LPPool2d(2, 2), lambda: nn.AdaptiveMaxPool2d(4), lambda: nn.AvgPool2d(2)
    ),
    "max unpool": call(_unpooled, IMAGE, conv=lambda: nn.Conv2d(8, 8, 1)),
    "unfold and fold": call(_unfolded, IMAGE, lin=lambda: nn.Linear(72, 72)),
    "grid_sample": call(_grid, IMAGE, lin=lambda: nn.Linear(8, 6)),
    "PixelShuffle": on(IMAGE, lambda: nn.PixelShuffle(2), lambda: nn.PixelUnshuffle(2)),
    "Upsample": on(
        IMAGE, lambda: nn.Upsample(scale_factor=2, mode="bicubic"), lambda: nn.Conv2d(8, 2, 3)
    ),
    "reflection padding": on(IMAGE, lambda: nn.ReflectionPad2d(2), lambda: nn.Conv2d(8, 8, 3)),
    "einsum": call(lambda s, x: torch.einsum("bnc,bmc,bmd->bnd", s.lin(x), x, x), TEXT, lin=linear),
    "baddbmm": call(lambda s, x: torch.baddbmm(s.lin(x), x @ x.mT, x), TEXT, lin=linear),
    "cdist": call(lambda s, x: torch.cdist(s.lin(x), x).softmax(-1), TEXT, lin=linear),
    "rotary, complex": call(_rotary, TEXT, lin=linear),
    "FFT": call(_spectral, IMAGE, conv=lambda: nn.Conv2d(8, 8, 1)),
    "STFT": call(_stft, (2, 64), lin=lambda: nn.Linear(8, 4)),
    "sort and scatter": call(
        lambda s, x: torch.zeros_like(x).scatter_add(1, s.lin(x).argsort(1), x.cumsum(1)),
        TEXT,
        lin=linear,
    ),
    "linear algebra": call(
        lambda s, x: torch.linalg.solve(x @ x.mT + torch.eye(6, device=x.device), s.lin(x)),
        TEXT,
        lin=linear,
    ),
}
