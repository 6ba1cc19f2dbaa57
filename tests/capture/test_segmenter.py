"""The user's ONNX model: a real one built here, each shape it may have, each way it is broken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinloop.capture import segmenter
from twinloop.capture.segmenter import Segmenter
from twinloop.errors import InputError

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

PICTURE = np.zeros((48, 64, 3), np.uint8)
PICTURE[10:30, 20:50, 0] = 255
TRUTH = PICTURE[..., 0] > 127


def model(
    path: Path,
    *,
    channels: int = 1,
    size: tuple = ("h", "w"),
    tail: str | None = "Sigmoid",
    squeeze: bool = False,
    metadata: dict | None = None,
    domain: str = "",
) -> Path:
    """A 1 x 1 convolution that reacts to red: logit 20 r - 10 (or its negative, and it)."""
    weight = np.zeros((channels, 3, 1, 1), np.float32)
    weight[:, 0] = 20
    bias = np.full(channels, -10, np.float32)
    if channels == 2:
        weight[0], bias[0] = -weight[0], 10
    nodes = [helper.make_node("Conv", ["image", "weight", "bias"], ["a"])]
    last = "a"
    if tail:
        attributes = {"axis": 1} if tail == "Softmax" else {}
        nodes.append(helper.make_node(tail, [last], ["b"], domain=domain, **attributes))
        last = "b"
    constants = [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(bias, "bias")]
    if squeeze:
        constants.append(numpy_helper.from_array(np.array([1], np.int64), "axes"))
        nodes.append(helper.make_node("Squeeze", [last, "axes"], ["c"]))
        last = "c"
    graph = helper.make_graph(
        nodes,
        "red",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, *size])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        constants,
    )
    opsets = [helper.make_opsetid("", 17)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    built = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    helper.set_model_props(built, metadata or {})
    onnx.save(built, path)
    return path


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"tail": None},
        {"squeeze": True},
        {"channels": 2, "tail": "Softmax"},
        {"channels": 2, "tail": None},
        {"size": (96, 128)},
    ],
)
def test_every_output_shape(tmp_path: Path, kind: dict) -> None:
    """Logits or probabilities, one or two channels, free or fixed size: the red part is found."""
    found = Segmenter(model(tmp_path / "m.onnx", **kind)).mask(PICTURE)
    assert found.shape == TRUTH.shape
    both, either = ((found > 0) & TRUTH).sum(), ((found > 0) | TRUTH).sum()
    assert both / either > 0.93


def test_mean_and_std(tmp_path: Path) -> None:
    """From metadata, or from the file beside the model; probabilities are exactly the model's."""
    metadata = {"mean": "[0.2, 0, 0]", "std": "[0.5, 1, 1]", "multiple": "16"}
    path = model(tmp_path / "m.onnx", metadata=metadata)
    expected = 1 / (1 + np.exp(10 - 20 * (1.0 - 0.2) / 0.5))
    loaded = Segmenter(path)
    assert loaded.probability(PICTURE)[20, 30] == pytest.approx(expected, abs=1e-6)
    np.testing.assert_array_equal(loaded.probability(PICTURE), loaded.probability(PICTURE))
    (tmp_path / "m.yaml").write_text("mean: [0.9, 0, 0]\n")
    assert Segmenter(path).probability(PICTURE)[20, 30] == pytest.approx(
        1 / (1 + np.exp(10 - 20 * 0.1)), abs=1e-6
    )
    for text, message in (
        ("mean: [1, 2]\n", "does not describe"),
        ("size: 3\n", "does not describe"),
        ("mean: [", "does not describe"),
        ("std: [0, 1, 1]\n", "is zero"),
    ):
        (tmp_path / "m.yaml").write_text(text)
        with pytest.raises(InputError, match=message):
            Segmenter(path)


def test_models_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several or wrong inputs, too large, custom operators, outputs of other shapes, NaN."""
    with pytest.raises(InputError, match="wants pictures of 9000 x 64 px"):
        Segmenter(model(tmp_path / "a.onnx", size=(64, 9000)))
    with pytest.raises(InputError, match="cannot be loaded"):
        Segmenter(model(tmp_path / "b.onnx", tail="Secret", domain="com.example"))
    with pytest.raises(InputError, match=r"output of shape \(1, 3, 64, 64\)"):
        Segmenter(model(tmp_path / "c.onnx", channels=3)).mask(PICTURE)
    three = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["image"], ["y"])], "x", [three], [out])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        tmp_path / "d.onnx",
    )
    with pytest.raises(InputError, match=r"expected one, float32 \(1, 3, h, w\)"):
        Segmenter(tmp_path / "d.onnx")
    nan = model(tmp_path / "e.onnx", tail="Log")
    with pytest.raises(InputError, match="not finite"):
        Segmenter(nan).mask(PICTURE)
    monkeypatch.setattr(segmenter, "LARGEST_MODEL", 10)
    with pytest.raises(InputError, match="at most 10 are loaded"):
        Segmenter(nan)


def test_damaged_files(tmp_path: Path) -> None:
    """Missing, 0 bytes, cut off, something else; weights in another file."""
    path = model(tmp_path / "m.onnx")
    whole = path.read_bytes()
    for content, message in ((b"", "0 bytes"), (whole[:100], "cannot"), (b"x" * 99, "cannot")):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            Segmenter(path)
    with pytest.raises(InputError, match="cannot be read"):
        Segmenter(tmp_path / "none.onnx")
    path.write_bytes(whole)
    onnx.save(
        onnx.load(path),
        tmp_path / "outside.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    with pytest.raises(InputError, match="weights inside"):
        Segmenter(tmp_path / "outside.onnx")
    with pytest.raises(InputError, match="expected uint8 RGB"):
        Segmenter(path).mask(PICTURE[..., 0])
