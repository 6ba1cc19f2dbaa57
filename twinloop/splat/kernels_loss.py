# mypy: ignore-errors
"""Warp kernels of the loss and of Adam on the CPU: thin shells around native code.

Arrays come as addresses: wrapping a tensor as a Warp array takes 13 us, half a launch, and these
kernels are launched with a dozen of them many times a second. Their caller checks types, shapes and
contiguity, and keeps the tensors alive.

Not `fast_math`, unlike the compositor: the gradient's zeros (at equal pixels) and infinities must
stay what they are.
"""

import warp as wp

from twinloop.splat.native import adam, loss

wp.config.log_level = wp.LOG_ERROR
wp.init()
wp.set_module_options(
    {
        "extra_build_options": wp.ModuleBuildOptions(extra_cpu_preamble=loss.SOURCE + adam.SOURCE),
        "enable_backward": False,
        "optimization_level": 3,
    }
)


@wp.func_native(
    "twinloop_loss::band(first, last, width, height, (const float*)image, (const float*)alpha, "
    "(const float*)truth, (const float*)mask, b0, b1, b2, c_l1, c_ssim, c_alpha, "
    "(float*)image_gradient, (float*)alpha_gradient, (float*)sums, (float*)scratch);"
)
def _loss_band(
    first: int,
    last: int,
    width: int,
    height: int,
    image: wp.uint64,
    alpha: wp.uint64,
    truth: wp.uint64,
    mask: wp.uint64,
    b0: float,
    b1: float,
    b2: float,
    c_l1: float,
    c_ssim: float,
    c_alpha: float,
    image_gradient: wp.uint64,
    alpha_gradient: wp.uint64,
    sums: wp.uint64,
    scratch: wp.uint64,
): ...


@wp.kernel(enable_backward=False)
def loss_band(
    first: int,
    last: int,
    width: int,
    height: int,
    image: wp.uint64,
    alpha: wp.uint64,
    truth: wp.uint64,
    mask: wp.uint64,
    b0: float,
    b1: float,
    b2: float,
    c_l1: float,
    c_ssim: float,
    c_alpha: float,
    image_gradient: wp.uint64,
    alpha_gradient: wp.uint64,
    sums: wp.uint64,
    scratch: wp.uint64,
):
    """Loss and gradient of rows first to last; one launch of size one."""
    _loss_band(
        first,
        last,
        width,
        height,
        image,
        alpha,
        truth,
        mask,
        b0,
        b1,
        b2,
        c_l1,
        c_ssim,
        c_alpha,
        image_gradient,
        alpha_gradient,
        sums,
        scratch,
    )


@wp.func_native(
    "twinloop_adam::range(first, last, (float*)value, (const float*)gradient, (float*)m, "
    "(float*)v, (const float*)factor, period, b1, b2, step, root, eps);"
)
def _adam_range(
    first: wp.int64,
    last: wp.int64,
    value: wp.uint64,
    gradient: wp.uint64,
    m: wp.uint64,
    v: wp.uint64,
    factor: wp.uint64,
    period: int,
    b1: float,
    b2: float,
    step: float,
    root: float,
    eps: float,
): ...


@wp.kernel(enable_backward=False)
def adam_range(
    first: wp.int64,
    last: wp.int64,
    value: wp.uint64,
    gradient: wp.uint64,
    m: wp.uint64,
    v: wp.uint64,
    factor: wp.uint64,
    period: int,
    b1: float,
    b2: float,
    step: float,
    root: float,
    eps: float,
):
    """One Adam step of elements first to last; one launch of size one."""
    _adam_range(first, last, value, gradient, m, v, factor, period, b1, b2, step, root, eps)
