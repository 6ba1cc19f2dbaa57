"""The native kernels for processors other than this one: SSE2, AVX2, NEON.

Vectors in the C++ text are wider than some processors' registers; clang splits them. That must not
change results. What runs here is run, the rest is compiled.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from twinloop.splat.native import (
    adam,
    gaussians,
    harmonics,
    loss,
    projection,
    simd,
    surfel_adjoint,
    surfel_backward,
    surfel_normals,
    surfel_projection,
    surfel_steps,
    surfels,
)

ALL = os.environ.get("TWINLOOP_LOWERINGS") == "all"
"""Also the rasterisers, whose kernels take a minute to compile for each processor."""
X86 = platform.machine() in ("x86_64", "AMD64")

PROGRAM = """
import sys
import numpy as np, torch, warp as wp
torch.set_num_threads(1)
parts, folder, *targets = sys.argv[1:]
from twinloop.splat.adam import Adam
from twinloop.splat.loss import masked_loss
if parts == "all":
    from twinloop.splat import cpu, cpu_2dgs
    from twinloop.splat.rasterize import rasterization
    from twinloop.splat.rasterize_2dgs import rasterization_2dgs
kernels = [m for n, m in sys.modules.items() if n.startswith("twinloop.splat.kernels")]
for target in targets:
    for module in kernels:
        flags = "-march=native" if target == "native" else f"-target-cpu {target}"
        wp.set_module_options({"cpu_compiler_flags": flags}, module=module)
        wp.load_module(module, device="cpu")
    g = torch.Generator().manual_seed(0)
    def random(*shape):
        return torch.rand(*shape, generator=g)
    image, alpha = random(45, 50, 3).requires_grad_(), random(45, 50).requires_grad_()
    value = masked_loss(image, alpha, random(45, 50, 3), random(45, 50), random(3))
    value.backward()
    out = {"loss": value.detach(), "by_image": image.grad, "by_alpha": alpha.grad}
    free = {"sh": random(301, 9, 3).requires_grad_()}
    optimiser = Adam(free, rest={"sh": 0.25})
    for _ in range(5):
        free["sh"].grad = random(301, 9, 3) - 0.5
        optimiser.step(free, {"sh": 0.01})
    out["adam"] = free["sh"].detach()
    if parts == "all":
        view = torch.eye(4)[None].clone()
        view[0, 2, 3] = 2.0
        K = torch.tensor([[[80.0, 0, 32], [0, 80, 24], [0, 0, 1]]])
        for name, draw in (("solid", rasterization), ("flat", rasterization_2dgs)):
            scene = [random(200, 3) - 0.5, random(200, 4) - 0.5, 0.02 + 0.1 * random(200, 3),
                     random(200), random(200, 3)]
            scene = [t.requires_grad_() for t in scene]
            image, alpha = draw(*scene, view, K, 64, 48, render_mode="RGB+D")[:2]
            (image.square().sum() + alpha.sum()).backward()
            out |= {f"{name}_image": image.detach(), f"{name}_alpha": alpha.detach()}
            out |= {f"{name}_gradient_{i}": t.grad for i, t in enumerate(scene)}
    np.savez(f"{folder}/{target}.npz", **{k: v.numpy() for k, v in out.items()})
"""


def run(targets: list[str], folder: Path) -> list[dict[str, np.ndarray]]:
    """Results of the program with kernels for processors that clang knows by these names."""
    parts = "all" if ALL else "few"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TWINLOOP_NATIVE": "1"}
    command = [sys.executable, "-c", PROGRAM, parts, str(folder), *targets]
    subprocess.run(command, check=True, env=environment)
    found = []
    for target in targets:
        with np.load(folder / f"{target}.npz") as file:
            found.append(dict(file))
    return found


@pytest.mark.skipif(not X86, reason="SSE2 and AVX2 are of x86-64 processors")
def test_sse2_and_avx2_give_what_this_processor_gives(tmp_path: Path) -> None:
    """Kernels compiled for any x86-64, and for AVX2, equal those for this machine to 1e-6."""
    targets = ["native", "x86-64", "x86-64-v3"]
    native, *others = run(targets, tmp_path)
    for target, found in zip(targets[1:], others, strict=True):
        for name, values in found.items():
            error = np.linalg.norm(values - native[name]) / np.linalg.norm(native[name])
            limit = 2e-5 if "gradient" in name else 1e-6  # sums over pixels in another order
            assert error < limit, (target, name)


@pytest.mark.skipif(not X86, reason="elsewhere the other tests run what is tested here")
@pytest.mark.parametrize(
    "text",
    [
        loss.SOURCE,
        adam.SOURCE,
        simd.SOURCE + gaussians.SOURCE,
        simd.SOURCE + harmonics.SOURCE + projection.SOURCE,
        simd.SOURCE
        + harmonics.SOURCE
        + surfels.SOURCE
        + surfel_backward.SOURCE
        + surfel_projection.SOURCE
        + surfel_adjoint.SOURCE
        + surfel_normals.SOURCE
        + surfel_steps.SOURCE,
    ],
    ids=["loss", "adam", "gaussians", "projection", "surfels"],
)
def test_text_compiles_for_neon(tmp_path: Path, text: str) -> None:
    """Clang takes the text for 64-bit ARM: no x86 intrinsic, no type of another size.

    Warp's wheel has the code generator of its own machine only, so that this is the front end's
    word on types, builtins and vectors; of what it emits only that there is something is checked.
    """
    build = pytest.importorskip("warp._src.build")
    import warp as wp

    wp.init()
    source, result = tmp_path / "text.cpp", tmp_path / "text.o"
    source.write_text(text)
    build.build_cpu(str(result), str(source), extra_flags="-triple aarch64-unknown-linux-gnu")
    assert result.stat().st_size > 0
    source.write_text(text.replace("namespace", "#include <immintrin.h>\nnamespace", 1))
    with pytest.raises(Exception, match="build failed"):
        build.build_cpu(str(result), str(source), extra_flags="-triple aarch64-unknown-linux-gnu")
