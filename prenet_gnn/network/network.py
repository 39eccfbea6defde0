"""Seconds per call: roofline terms times learned corrections, added up."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from prenet_gnn.encoding.batch import FLOORS
from prenet_gnn.encoding.device import DEVICE, FORMATS, RUN
from prenet_gnn.encoding.fields import OPERATORS, WIDTH, size_log
from prenet_gnn.network.config import ModelConfig
from prenet_gnn.network.limits import MAX_LOG, OUTPUTS, correction_limits
from prenet_gnn.network.loops import loop_seconds
from prenet_gnn.network.message_passing import CONVS
from prenet_gnn.network.spread import spread
from prenet_gnn.network.wide import START, wide_inverse_rate
from tracing.costs.vocab import KINDS

# Kinds whose arithmetic is billed at a rate of its own.
CLASSES = (("conv", "conv_transpose"), ("linear",), ("matmul", "attention"), ("rnn",))
# Grouped convolutions run on plain lanes, not on matrix units; all the rest has little arithmetic.
GROUPED, OTHERS = len(CLASSES), len(CLASSES) + 1
# A 1 x 1 convolution is a plain product; a 3 x 3 one of stride 1 may use Winograd's algorithm, with
# 2.25 times fewer multiplications (Lavin and Gray 2016, arXiv:1509.09308).
POINTWISE, WINOGRAD = OTHERS + 1, OTHERS + 2
CLASS_COUNT = WINOGRAD + 1
# Rate of half-precision matrix units over that of plain lanes (Ampere's and Ada's data sheets).
MATRIX_OVER_PLAIN = 8.0
LOSS_COLUMN = KINDS.index("loss")
# Starting points; training moves them. A kernel takes a few microseconds at least; PyTorch
# dispatches an operator in about ten (both as seen in launch-bound rows of the data).
KERNEL_S = 2e-6
CALL_S = 8e-6
VIEW_CALLS = 0.3
# Launch and synchronisation around one operator that is timed alone.
FLOOR_S = 1e-5
SHARPNESS = 4.0
# Sizes of a tile of a matrix product on a multiprocessor (128 x 64, as CUTLASS and cuDNN use it),
# its starting weight, and the starting share of traffic that a large enough cache saves.
TILE_LOG2 = 13.0
FILL_LOG = -1.5
CACHE_LOGIT = -1.5
OPERATOR_STD, SETTING_STD = 0.1, 0.3
# A kernel starts and ends faster at a higher clock: the exponent's starting point, and the clock
# that `KERNEL_S` goes with.
KERNEL_CLOCK, KERNEL_CLOCK_HZ = 0.5, 1.5e9
# Starting share of a memory-bound kernel's time that the multiprocessors decide and not the memory.
ISSUE_LOGIT = -0.8
# Starting share of the traffic between fused calls, and of their launches, that compiling saves.
FUSE_LOGIT = 1.0
COMPILED = RUN.index("compiled")
# float64 under an early version, which files that name none had: the third rate. Only convolutions
# to many channels were slow: over eight cards, from 192 on explains the times of VGG, ResNet,
# MNASNet, ShuffleNet and DenseNet best of 11 limits (`python -m experiments.early_fp64`).
FP64, SINCE_1_8, THIRD = FORMATS.index("fp64"), RUN.index("since_1_8"), 2
CONVOLUTION = 0
EARLY_FP64, EARLY_CHANNELS = DEVICE.index("early_fp64"), size_log(191.0)


class Times(NamedTuple):
    """What the network returns, in seconds.

    Shapes:
        `node (M, 2)`, forward and backward of one call of every class of every row; all others
        `(G,)`.
    """

    total: Tensor
    forward: Tensor
    backward: Tensor
    optimizer: Tensor
    device: Tensor
    host: Tensor
    node: Tensor
    loss: Tensor
    zero_grad: Tensor
    copy: Tensor


class TimeGNN(nn.Module):
    """The predictor's network.

    Time adds up: each call costs arithmetic, memory traffic and kernels; the device's sum and the
    host's dispatch overlap, so the larger of the two decides (a smooth maximum).
    """

    def __init__(self, config: ModelConfig) -> None:
        """Starts as a plain roofline model: all corrections are zero."""
        super().__init__()
        self.config = config
        h, formats, classes = config.hidden, len(FORMATS), CLASS_COUNT
        self.operator = nn.Embedding(len(OPERATORS) + 1, config.operator_embedding)
        # an operator that no row has must not stand out
        nn.init.normal_(self.operator.weight, std=OPERATOR_STD)
        self.encoder = nn.Sequential(
            nn.Linear(WIDTH + config.operator_embedding, h),
            nn.SiLU(),
            nn.Linear(h, h),
        )
        self.convs = nn.ModuleList(CONVS[config.conv](h) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)
        w = config.head_hidden
        self.before_run = nn.Sequential(
            nn.LayerNorm(h), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, w)
        )
        self.run_film = nn.Linear(len(RUN), 2 * w, bias=False)
        self.head = nn.Sequential(nn.SiLU(), nn.Linear(w, w), nn.SiLU(), nn.Linear(w, OUTPUTS))
        self.device_head = nn.Sequential(
            nn.Linear(w + 6, config.device_hidden),
            nn.SiLU(),
            nn.Linear(config.device_hidden, 4),
        )
        for net in (self.head, self.device_head):
            for parameter in net[-1].parameters():
                nn.init.zeros_(parameter)
        # flags that no row has set must not move anything
        nn.init.zeros_(self.run_film.weight)
        self.rate_logits = nn.Parameter(torch.full((formats, classes, 3), math.log(1 / 3)))
        self.old_fp64_log = nn.Parameter(torch.zeros(classes))
        self.wide_log = nn.Parameter(torch.tensor(START))
        with torch.no_grad():
            for name in ("tf32", "half_matrix"):
                self.rate_logits[FORMATS.index(name), GROUPED] += math.log(MATRIX_OVER_PLAIN)
        self.memory_log = nn.Parameter(torch.full((formats,), math.log(1.2)))
        self.issue_logit = nn.Parameter(torch.full((formats,), ISSUE_LOGIT))
        self.kernel_log = nn.Parameter(torch.zeros(formats))
        self.kernel_clock = nn.Parameter(torch.tensor(KERNEL_CLOCK))
        self.fill_log = nn.Parameter(torch.full((classes,), FILL_LOG))
        self.cache_share = nn.Parameter(torch.full((2,), CACHE_LOGIT))
        self.cache_size = nn.Parameter(torch.zeros(2))
        self.call_log = nn.Parameter(torch.zeros(2, 8))
        self.kind_calls = nn.Parameter(torch.zeros(2, len(KINDS)))
        self.run_calls = nn.Linear(len(RUN), 2, bias=False)
        self.spec_slopes = nn.Parameter(torch.zeros(3, 4))
        self.host_year = nn.Parameter(torch.zeros(()))
        self.step_log = nn.Parameter(torch.zeros(6))
        self.floor_log = nn.Parameter(torch.zeros(len(FLOORS) + 1))
        self.sharpness = nn.Parameter(torch.tensor(SHARPNESS))
        self.fuse_logit = nn.Parameter(torch.full((2,), FUSE_LOGIT))
        nn.init.zeros_(self.run_calls.weight)
        self.device_latent = nn.Parameter(torch.zeros(config.device_latents, 4))
        self.host_latent = nn.Parameter(torch.zeros(config.host_latents, 2))
        # host forward and backward; arithmetic and memory traffic, for the libraries it brings
        self.framework_latent = nn.Parameter(torch.zeros(config.framework_latents, 4))
        width = config.setting_latents
        if width:
            # what a device, and it under a framework, do to every call in a way of their own
            self.device_setting = nn.Parameter(torch.zeros(config.device_latents, width))
            self.host_setting = nn.Parameter(torch.zeros(config.host_latents, width))
            self.setting_film = nn.Linear(width, 2 * w, bias=False)
            nn.init.normal_(self.setting_film.weight, std=SETTING_STD)
        index = torch.full((len(KINDS),), OTHERS)
        for number, kinds in enumerate(CLASSES):
            index[[KINDS.index(kind) for kind in kinds]] = number
        self.register_buffer("class_of_kind", index)
        self.class_of_kind: Tensor
        self.register_buffer("limit", correction_limits(), persistent=False)
        self.limit: Tensor
        # operators whose names it does not look at
        self.register_buffer("hidden_names", torch.zeros(len(OPERATORS) + 1, dtype=torch.bool))
        self.hidden_names: Tensor

    def embed(self, data: Data) -> Tensor:
        """Embeddings of all calls, `(N, H)`; neither device nor way to run enters.

        So rows of one graph share this pass.
        """
        name = torch.where(self.hidden_names[data.operator], 0, data.operator)
        if self.training and self.config.operator_dropout:
            hidden = torch.rand(len(name), device=name.device) < self.config.operator_dropout
            name = torch.where(hidden, 0, name)
        x = self.encoder(torch.cat([data.x, self.operator(name)], dim=-1))
        for conv in self.convs:
            x = conv(x, data.edge_index, data.edge_attr)
        embedded: Tensor = self.dropout(x)
        return embedded

    def forward(self, data: Data) -> Times:
        """Seconds of every call and of every graph of a batch; see `encoding.batch.collate`."""
        h = self.before_run(self.embed(data))
        data = spread(data)
        film = self.run_film(data.run)
        if self.config.setting_latents:
            film = film + self.setting_film(self._setting(data))
        gain, shift = film.chunk(2, dim=-1)
        h = torch.addcmul(shift[data.batch], h[data.take], 1.0 + gain[data.batch])
        limit = self.limit[data.kind]
        scale = limit * torch.tanh(self.head(h) / limit)
        compute, memory, kernel = self._device_terms(data)
        if not self.config.use_prior:
            compute, memory = torch.ones_like(compute) * 1e-4, torch.ones_like(memory) * 1e-4
        compute, memory = compute * scale[:, :2].exp(), memory * scale[:, 2:4].exp()
        kernel = kernel * scale[:, 4:6].exp()
        node = compute + memory + kernel
        if self.config.use_device_head:
            node = node * self._device_correction(h, data, compute, memory, kernel).exp()
        if self.config.use_prior:
            node = (node + self._loops(data)) * (data.work[:, 4:6] > 0)
        return self._sum(data, node, scale[:, 6:8].exp())

    def _latents(self, data: Data) -> Tensor:
        return _look_up(self.device_latent, data.latents[:, 0])

    def _setting(self, data: Data) -> Tensor:
        """Latents of devices and of devices under a framework; zero for new ones: `(G, S)`."""
        device = _look_up(self.device_setting, data.latents[:, 0])
        return device + _look_up(self.host_setting, data.latents[:, 1])

    def _inverse_rate(self, data: Data, number: Tensor) -> Tensor:
        """Seconds per FLOP of every call, before corrections: forward and backward `(M, 2)`."""
        device, batch, kind = data.device, data.batch, self._class(data)
        rates = device[batch, :3]
        logits = self.rate_logits[number[batch], kind]
        if not self.config.use_old_fp64:
            plain: Tensor = (logits - rates).exp().sum(dim=-1, keepdim=True)
            return plain.expand(-1, 2)
        # the third rate of float64 is for early libraries alone
        third = logits[:, THIRD].masked_fill((number == FP64)[batch], -math.inf)
        logits = torch.cat([logits[:, :THIRD], third[:, None]], dim=-1)
        backward = (logits - rates).exp().sum(dim=-1)
        early = ((device[:, EARLY_FP64] > 0) & (data.run[:, SINCE_1_8] == 0))[batch]
        early = early & (data.x[:, 2] > EARLY_CHANNELS)
        early = early & ((kind == CONVOLUTION) | (kind == WINOGRAD) | (kind == POINTWISE))
        slow = (self.old_fp64_log[kind] - rates[:, THIRD]).exp()
        return torch.stack([torch.where(early, slow, backward), backward], dim=-1)

    def _framework(self, data: Data) -> Tensor:
        """Latents of the frameworks, zero for unknown ones: `(G, 4)`."""
        return _look_up(self.framework_latent, data.latents[:, 2])

    def _device_terms(self, data: Data) -> tuple[Tensor, Tensor, Tensor]:
        """Roofline seconds of every call, forward and backward, each `(N, 2)`."""
        device, batch = data.device, data.batch
        number = device[:, DEVICE.index("format")].long()
        latent, specs = self._latents(data), self._specs(device)
        framework = self._framework(data)
        inverse = wide_inverse_rate(data, self._inverse_rate(data, number), self.wide_log)
        adjust = latent[:, 0] + framework[:, 2] + specs @ self.spec_slopes[0]
        compute = data.work[:, :2] * inverse * adjust[batch, None].exp()
        if self.config.use_fill:
            compute = compute * (1.0 + self._waves(data))
        share = torch.sigmoid(self.issue_logit[number]) * float(self.config.use_issue)
        bandwidth = (1.0 - share) * (-device[:, 3]).exp() + share * (-device[:, 14]).exp()
        per_byte = (
            self.memory_log[number] + bandwidth.log() + latent[:, 1] + specs @ self.spec_slopes[1]
        )
        per_byte = per_byte + framework[:, 3]
        memory = data.work[:, 2:4] * per_byte[batch, None].exp()
        if self.config.use_fill:
            memory = memory * (1.0 - self._cached(data))
        per_kernel = self._per_kernel(device, latent) + specs @ self.spec_slopes[2]
        kernel = KERNEL_S * data.work[:, 4:6] * per_kernel[batch, None].exp()
        if self.config.use_fusion:
            share = torch.sigmoid(self.fuse_logit)
            compiled = data.run[batch, COMPILED, None]
            memory = memory * (1.0 - compiled * share[0] * data.fused[:, 1:])
            kernel = kernel * (1.0 - compiled * share[1] * data.fused[:, :1])
        return compute, memory, kernel

    def _per_kernel(self, device: Tensor, latent: Tensor) -> Tensor:
        """Logarithm of a kernel's fixed time over `KERNEL_S`: `(G,)`."""
        clock = device[:, DEVICE.index("log_clock")] - math.log(KERNEL_CLOCK_HZ)
        log: Tensor = self.kernel_log[device[:, 13].long()] - self.kernel_clock * clock
        return log + latent[:, 2]

    def _loops(self, data: Data) -> Tensor:
        """Seconds of loops within kernels `(M, 2)`; corrections would have to extrapolate."""
        forward = loop_seconds(data) * self._latents(data)[data.batch, 3].exp()
        return torch.stack([forward, torch.zeros_like(forward)], dim=-1)

    def _class(self, data: Data) -> Tensor:
        """Which rate the arithmetic of every call runs at, `(M,)`."""
        number: Tensor = self.class_of_kind[data.kind]
        if self.config.use_conv_classes:
            number = torch.where(data.pointwise, POINTWISE, number)
            number = torch.where(data.winograd, WINOGRAD, number)
        return torch.where(data.grouped, GROUPED, number)

    def _waves(self, data: Data) -> Tensor:
        """Multiprocessors per tile of a product, weighted: `(M, 1)`; large when few are busy."""
        tiles = 8.0 * data.x.sum(dim=-1) - TILE_LOG2
        log = self.fill_log[self._class(data)] + data.device[data.batch, 4]
        waves: Tensor = (log - math.log(2.0) * tiles).clamp(max=4.0).exp()
        return waves[:, None]

    def _cached(self, data: Data) -> Tensor:
        """Share of the traffic that the second level cache saves, forward and backward `(M, 2)`."""
        room = data.device[data.batch, 5, None] + self.cache_size
        fits = torch.sigmoid(1.5 * (room - torch.log(1.0 + data.work[:, 2:4])))
        share: Tensor = torch.sigmoid(self.cache_share) * fits
        return share

    def _specs(self, device: Tensor) -> Tensor:
        """Four centred specifications, for slopes that are kept small: `(G, 4)`."""
        balance = (device[:, 0] - device[:, 3] - 4.0) / 4.0
        power = (device[:, 2] - device[:, 0]) / 4.0
        power = power * (device[:, DEVICE.index("format")] != FP64)
        year = device[:, 7] / 8.0
        return torch.stack([balance, power, year, device[:, 10]], dim=-1)

    def _device_correction(
        self, h: Tensor, data: Data, compute: Tensor, memory: Tensor, kernel: Tensor
    ) -> Tensor:
        device, batch = data.device, data.batch
        tiles = 8.0 * data.x.sum(dim=-1) - 14.0
        waves = (tiles - device[batch, 4] / math.log(2)) / 8.0
        cache = (torch.log2(1.0 + data.work[:, 2]) - device[batch, 5] / math.log(2)) / 8.0
        bound = torch.log10((compute[:, :1] + 1e-9) / (memory[:, :1] + 1e-9)) / 3.0
        back = torch.log10((compute[:, 1:] + 1e-9) / (memory[:, 1:] + 1e-9)) / 3.0
        length = torch.log10((compute + memory + 1e-9) / (kernel + 1e-9)) / 3.0
        numbers = [waves[:, None], cache[:, None], bound, back, length]
        out = self.device_head(torch.cat([h, *numbers], dim=-1))
        correction: Tensor = MAX_LOG * torch.tanh(out[:, :2] / MAX_LOG)
        return correction

    def _sum(self, data: Data, node: Tensor, call_scale: Tensor) -> Times:
        graphs, batch = len(data.device), data.batch

        def total(values: Tensor) -> Tensor:
            zeros = torch.zeros(graphs, *values.shape[1:], dtype=values.dtype)
            return zeros.index_add_(0, batch, values)

        is_loss = (data.kind == LOSS_COLUMN)[:, None].float()
        weighted = node * data.count[:, None]
        by_phase, loss = total(weighted * (1 - is_loss)), total(weighted * is_loss)
        kind = data.kind
        calls = data.work[:, 6:8] * self.kind_calls[:, kind].t().exp() * call_scale
        calls = total(calls * data.count[:, None])
        step, phases, device = data.step, data.phases, data.device
        kernel = KERNEL_S * self._per_kernel(device, self._latents(data)).exp()
        per_byte = (-device[:, 3]).exp()
        optimizer = step[:, 0] * per_byte * self.step_log[0].exp() + step[:, 1] * kernel
        zero = step[:, 2] * per_byte * self.step_log[1].exp() + step[:, 3] * kernel
        copy = step[:, 4] * (self.step_log[2] + math.log(2.0) - device[:, 11]).exp() + (
            2e-5 * self.step_log[3].exp()
        )
        forward, backward = by_phase[:, 0], by_phase[:, 1] + loss[:, 1]
        device_s = (
            phases[:, 0] * forward
            + phases[:, 1] * loss[:, 0]
            + phases[:, 2] * backward
            + phases[:, 3] * optimizer
            + phases[:, 4] * zero
        )
        host_s = self._host(data, calls)
        overlapped = (
            _smooth_max(device_s, host_s, self.sharpness) if self.config.use_host else device_s
        )
        total_s = torch.where(device[:, 9] > 0, device_s + 0.1 * host_s, overlapped)
        alone = device_s + FLOOR_S * self.floor_log[data.floor].exp()
        total_s = torch.where(data.floor > 0, alone, total_s)
        return Times(
            total=total_s + phases[:, 5] * copy,
            forward=forward,
            backward=backward,
            optimizer=optimizer,
            device=device_s,
            host=host_s,
            node=node,
            loss=loss[:, 0],
            zero_grad=zero,
            copy=copy,
        )

    def _host(self, data: Data, calls: Tensor) -> Tensor:
        phases, step = data.phases, data.step
        latent = _look_up(self.host_latent, data.latents[:, 1]) + self._framework(data)[:, :2]
        # no source names its machines; newer devices sit in newer ones
        age = self.host_year * data.device[:, 7, None] / 8.0
        speed = (self.run_calls(data.run) + latent + age).exp() * CALL_S
        forward = speed[:, 0] * (calls[:, 0] + VIEW_CALLS * self.call_log[0, 0].exp() * data.views)
        backward = speed[:, 1] * calls[:, 1] * self.call_log[0, 1].exp()
        optimizer = speed[:, 0] * step[:, 1] * self.call_log[0, 2].exp()
        zero = speed[:, 0] * step[:, 3] * self.call_log[0, 3].exp()
        fixed = 3e-5 * self.call_log[0, 4].exp()
        host: Tensor = (
            phases[:, 0] * forward
            + phases[:, 2] * backward
            + phases[:, 3] * optimizer
            + phases[:, 4] * zero
            + fixed
        )
        return host


def _look_up(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a latent table, `(G, L)`; zero at position 0, which is all that was not seen."""
    found: Tensor = table[index] * (index > 0)[:, None]
    return found


def _smooth_max(first: Tensor, second: Tensor, sharpness: Tensor) -> Tensor:
    """`(a^p + b^p)^(1/p)`, in logarithms."""
    p = sharpness.clamp(1.5, 12.0)
    logs = torch.stack([first.clamp(min=1e-9).log(), second.clamp(min=1e-9).log()])
    return (torch.logsumexp(p * logs, dim=0) / p).exp()
