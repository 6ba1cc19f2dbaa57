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
    "twinloop_adam::step((const twinloop_adam::Row*)rows, (const float*)steps, count, part, parts, "
    "b1, b2, c1, c2, root, eps);"
)
def _adam_step(
    part: int,
    parts: int,
    rows: wp.uint64,
    steps: wp.uint64,
    count: int,
    b1: float,
    b2: float,
    c1: float,
    c2: float,
    root: float,
    eps: float,
): ...


@wp.kernel(enable_backward=False)
def adam_step(
    part: int,
    parts: int,
    rows: wp.uint64,
    steps: wp.uint64,
    count: int,
    b1: float,
    b2: float,
    c1: float,
    c2: float,
    root: float,
    eps: float,
):
    """One Adam step of a share of several tensors; one launch of size one.

    `rows`: (count, 7) int64, addresses of value, gradient, moments, factors, then the factors'
    period in vectors and the number of elements; `steps`: (count,) float32.
    """
    _adam_step(part, parts, rows, steps, count, b1, b2, c1, c2, root, eps)
