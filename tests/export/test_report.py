"""The report: self-contained, escaped, says what is missed, equal bytes."""

import re

from twinloop.card import ObjectCard
from twinloop.export.properties import Estimate
from twinloop.export.report import ReportData, collect, format_value, render

CARD = ObjectCard(name="mug", license="CC0-1.0", title="A <b>mug</b>", description="& more")
PNG = b"\x89PNG\r\n\x1a\nnot really"


def data(**changes):
    """Return a small report's data."""
    figures = [
        {
            "figure": "grasp_success",
            "value": 0.9,
            "unit": "",
            "target": 0.8,
            "better": "higher",
            "n": 20,
            "interval": [0.7, 0.97],
            "reached": True,
        },
        {
            "figure": "chamfer",
            "value": 1.5,
            "unit": "mm",
            "target": 1.0,
            "better": "lower",
            "n": 1,
            "interval": None,
            "reached": False,
        },
    ]
    metrics = {
        "evaluate": {
            "figures": figures,
            "parameters": [{"parameter": "mass", "truth": 0.36, "unit": "kg"}],
        },
        "ingest": {"frames": 48},
    }
    estimates = (
        Estimate("mass", 0.37, 0.01, 0.35, 0.39, "kg", True),
        Estimate("com_z", 0.0, 0.01, -0.02, 0.02, "m", False),
    )
    alone = (Estimate("mass", 0.3, 0.3, 0.01, 3.0, "kg", False),)
    return ReportData(
        CARD,
        metrics,
        {"ingest": {"contact_sheet.png": PNG, "masks.mp4": b"film"}},
        estimates,
        alone,
        **changes,
    )


def test_report_needs_no_other_file_and_no_network():
    """No address, script or file is referenced: pictures are inside."""
    html = render(data())
    assert not re.search(r"(src|href)=\"(?!data:)", html)
    assert "http" not in html
    assert "<script" not in html
    assert "data:image/png;base64," in html
    assert "<video controls" in html


def test_report_shows_figures_intervals_truth_and_misses():
    """Reached and missed targets, intervals beside truth, verdicts, and escaping of names."""
    html = render(data())
    assert "A &lt;b&gt;mug&lt;/b&gt;" in html
    assert "reached" in html
    assert "missed" in html
    row = re.search(r"<tr><td>mass</td>.*?</tr>", html, re.DOTALL)
    assert row
    for text in ("0.37", "0.35 to 0.39", "identified", "0.36", "yes", "unidentifiable"):
        assert text in row.group()
    assert "Time per stage" not in html


def test_times_appear_only_beside_the_package():
    """The same data with provenance shows the times and their sum."""
    one = {"wall_seconds": 2.5, "cpu_seconds": 2.0, "peak_memory_mb": 100.0}
    html = render(data(times={"ingest": one, "track": one}))
    assert "Time per stage" in html
    assert re.search(r"total</th><th class=\"n\">5<", html)


def test_collect_reads_what_stages_wrote(tmp_path):
    """Metrics and pictures of a folder, by stage."""
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics/track.json").write_text('{"frames": 3}')
    (tmp_path / "plots/track").mkdir(parents=True)
    (tmp_path / "plots/track/a.png").write_bytes(PNG)
    (tmp_path / "films/track").mkdir(parents=True)
    (tmp_path / "films/track/b.mp4").write_bytes(b"film")
    (tmp_path / "plots/track/c.txt").write_text("neither")
    metrics, plots = collect(tmp_path)
    assert metrics == {"track": {"frames": 3}}
    assert plots == {"track": {"a.png": PNG, "b.mp4": b"film"}}


def test_format_value():
    """Numbers to four digits, booleans as words, missing as a dash, lists as ranges."""
    assert format_value(0.123456) == "0.1235"
    assert format_value(True) == "yes"
    assert format_value(None) == "–"
    assert format_value([1.0, 2.5]) == "1 to 2.5"
