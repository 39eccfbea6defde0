"""Which kind of work each operator does."""

from __future__ import annotations

import re
from typing import Any

# Python's in-place operators, such as `__iand__`.
_IN_PLACE = re.compile(r"^__i(and|or|xor|lshift|rshift)__$")


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


KINDS = (
    "conv", "conv_transpose", "linear", "matmul", "attention", "rnn", "embedding", "batch_norm",
    "layer_norm", "group_norm", "rms_norm", "softmax", "activation", "binary", "unary", "pool",
    "interpolate", "reduce", "copy", "index", "sort", "random", "create", "dropout", "loss",
    "fft", "scan", "view", "other",
)  # fmt: skip

# Kinds that are spoken of together; the set operators say what a caller leaves out.
CONVOLUTIONS = words("conv conv_transpose")
# Matrix products of one call: dense layers, products of two activations, fused attention.
MATRIX_PRODUCTS = words("linear matmul attention")
# Layers whose time steps wait for each other: many small matrix products in one call.
RECURRENT = words("rnn")
# Kinds that do their FLOPs in products, in tensor cores where a device has them.
PRODUCTS = CONVOLUTIONS | MATRIX_PRODUCTS | RECURRENT
NORMS = words("batch_norm layer_norm group_norm rms_norm")
# Kinds that read some rows of a table and leave the others alone.
LOOKUPS = words("embedding index")

_OPS: dict[str, str] = {
    "conv": "conv1d conv2d conv3d convolution _convolution",
    "conv_transpose": "conv_transpose1d conv_transpose2d conv_transpose3d",
    "linear": "linear addmm _weight_norm_linear",
    "matmul": "matmul mm bmm baddbmm addbmm mv addmv dot vdot inner einsum bilinear tensordot "
    "chain_matmul _trilinear linalg_multi_dot linalg_vecdot addr outer ger kron _grouped_mm "
    "grouped_mm_fallback "
    "cdist _cdist_forward _euclidean_dist",
    "attention": "scaled_dot_product_attention _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _native_multi_head_attention "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_cudnn_attention "
    "flex_attention",
    "rnn": "lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell",
    "embedding": "embedding embedding_bag _embedding_bag",
    "batch_norm": "batch_norm _native_batch_norm_legit native_batch_norm instance_norm",
    "layer_norm": "layer_norm native_layer_norm",
    "group_norm": "group_norm native_group_norm",
    "rms_norm": "rms_norm _fused_rms_norm",
    "softmax": "softmax log_softmax _softmax _log_softmax _safe_softmax",
    "activation": "relu relu6 gelu silu sigmoid tanh hardswish hardsigmoid hardtanh leaky_relu elu "
    "selu celu mish softplus prelu _prelu_kernel rrelu softsign logsigmoid log_sigmoid threshold "
    "tanhshrink softshrink hardshrink glu",
    "binary": "add sub mul div rsub pow maximum minimum where eq ne lt le gt ge logical_and "
    "logical_or logical_xor addcmul addcdiv lerp atan2 fmod remainder floor_divide bitwise_and "
    "bitwise_or bitwise_xor true_divide masked_fill polar complex isclose heaviside copysign "
    "hypot xlogy logaddexp threshold_backward __and__ __or__ __xor__ floor_divide "
    "bitwise_left_shift "
    "__lshift__ __rshift__ bitwise_right_shift subtract multiply divide greater less not_equal "
    "greater_equal less_equal clamp_max clamp_min",
    "unary": "abs neg exp log sqrt rsqrt sin cos tan erf erfc erfinv floor ceil round trunc sign "
    "reciprocal square clamp clip log2 log10 log1p expm1 exp2 logical_not bitwise_not isnan isinf "
    "isposinf isneginf "
    "isfinite nan_to_num sinh cosh asin acos atan asinh acosh atanh sgn angle conj_physical "
    "sinc lgamma digamma frac deg2rad logit special_expit polygamma cumsum cumprod logcumsumexp "
    "cummax cummin diff trapezoid positive fake_quantize_per_tensor_affine i0 renorm "
    "special_erf special_gammaln special_log_ndtr special_logit _conj_physical resolve_conj_copy",
    "pool": "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d "
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
    "adaptive_max_pool2d adaptive_max_pool3d max_pool2d_with_indices max_pool1d_with_indices "
    "max_pool3d_with_indices lp_pool2d _adaptive_avg_pool2d fractional_max_pool2d max_unpool2d "
    "adaptive_max_pool2d_with_indices im2col col2im unfold_copy roi_align ps_roi_align roi_pool "
    "ps_roi_pool",
    "interpolate": "upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_bilinear2d "
    "upsample_bicubic2d upsample_trilinear3d upsample_linear1d _upsample_bilinear2d_aa "
    "_upsample_bicubic2d_aa _upsample_nearest_exact2d grid_sampler grid_sampler_2d grid_sampler_3d "
    "affine_grid_generator _upsample_nearest_exact1d",
    "reduce": "sum mean max min amax amin prod norm linalg_vector_norm linalg_norm var std any all "
    "argmax argmin logsumexp var_mean std_mean count_nonzero linalg_matrix_norm median nanmedian "
    "frobenius_norm cosine_similarity normalize nansum nanmean aminmax mode trace dist "
    "_weight_norm _weight_norm_interface pairwise_distance equal is_nonzero item _is_all_true "
    "_is_any_true "
    "_local_scalar_dense histc bincount std_mean",
    "copy": "cat stack hstack vstack dstack concat concatenate contiguous clone copy pad "
    "constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d "
    "replication_pad3d reflection_pad3d roll flip repeat tile repeat_interleave pixel_shuffle "
    "pixel_unshuffle channel_shuffle _to_copy to type_as tril triu rot90 native_channel_shuffle "
    "fliplr flipud masked_scatter fill diag_embed block_diag cartesian_prod combinations "
    "slice_scatter select_scatter diagonal_scatter as_strided_copy zero float half bfloat16 double "
    "int long bool",
    "index": "index index_select gather scatter scatter_add scatter_reduce index_add index_put "
    "index_copy take take_along_dim masked_select nonzero nonzero_static unique _unique2 "
    "unique_consecutive _index_put_impl one_hot bucketize searchsorted index_fill put "
    "segment_reduce _unsafe_index nms argwhere unique_dim",
    "sort": "sort topk argsort kthvalue msort multinomial",
    "random": "bernoulli rand randn randint rand_like randn_like normal uniform randperm "
    "randint_like exponential random geometric log_normal cauchy",
    "create": "zeros ones full empty arange linspace eye zeros_like ones_like full_like empty_like "
    "new_zeros new_ones new_full new_empty scalar_tensor tril_indices triu_indices meshgrid tensor "
    "hann_window hamming_window logspace empty_strided new_empty_strided lift_fresh_copy "
    "lift_fresh vander",
    "dropout": "dropout native_dropout feature_dropout alpha_dropout feature_alpha_dropout "
    "dropout1d "
    "dropout2d dropout3d",
    "loss": "cross_entropy_loss nll_loss nll_loss_nd nll_loss2d nll_loss_forward mse_loss l1_loss "
    "smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div "
    "ctc_loss _ctc_loss cosine_embedding_loss margin_ranking_loss hinge_embedding_loss "
    "triplet_margin_loss multi_margin_loss multilabel_margin_loss gaussian_nll_loss "
    "poisson_nll_loss soft_margin_loss multilabel_margin_loss_forward",
    "fft": "fft_fft fft_ifft fft_rfft fft_irfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_fftn "
    "fft_ifftn fft_rfftn fft_irfftn fft_hfft fft_ihfft _fft_r2c _fft_c2c _fft_c2r stft istft "
    "fft_fftshift fft_ifftshift",
    "scan": "associative_scan scan selective_scan",
    "view": "view reshape flatten unflatten permute transpose t expand expand_as squeeze unsqueeze "
    "slice select split split_with_sizes chunk unbind narrow view_as movedim moveaxis swapaxes "
    "swapdims alias detach diagonal unfold as_strided real imag view_as_real view_as_complex "
    "tensor_split ravel hsplit vsplit dsplit numpy_T numpy_t mT mH H adjoint conj resolve_conj "
    "resolve_neg _conj _unsafe_view view_dtype broadcast_to broadcast_tensors reshape_as detach "
    "requires_grad _assert_async _assert_scalar _assert_tensor_metadata sym_size "
    "sym_constrain_range sym_constrain_range_for_size set_grad_enabled _set_grad_enabled "
    "is_same_size atleast_1d atleast_2d atleast_3d unsafe_split unsafe_chunk "
    "unsafe_split_with_sizes "
    "_reshape_alias sym_numel sym_stride column_stack_view lift pin_memory _version "
    "is_floating_point result_type wait_tensor _add_batch_dim _remove_batch_dim _wrap_for_grad "
    "_unwrap_for_grad",
}
_NAMESPACES = words("aten torch torchvision transformers higher_order prims _operator")
OP_KIND: dict[str, str] = {op: kind for kind, ops in _OPS.items() for op in ops.split()}
# Calls that return their input where it has the type they ask for.
CONVERSIONS = words("to type_as float half bfloat16 double int long bool")
# Calls of kind `view` that copy when the input's strides do not allow a view.
MAY_COPY = words("reshape flatten ravel reshape_as")


def kind_of(target: str, operator: Any = None) -> tuple[str, bool]:
    """Finds the kind of an operator and whether it is known.

    Operators that are not listed are classed by what PyTorch declares of them: a view, or
    pointwise. Anything else is `other` and not known, so that the caller can name it.
    """
    parts = target.split(".")
    name = parts[1] if len(parts) > 1 else target
    known_namespace = parts[0] in _NAMESPACES
    for candidate in (name, name.rstrip("_"), _IN_PLACE.sub(r"__\1__", name)):
        if candidate in OP_KIND and known_namespace:
            return OP_KIND[candidate], True
    if operator is not None and known_namespace:
        if getattr(operator, "is_view", False):
            return "view", True
        if "pointwise" in {str(tag).rsplit(".", 1)[-1] for tag in getattr(operator, "tags", ())}:
            return "unary", True
    return "other", False
