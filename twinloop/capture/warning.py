"""The warning for capture files with faults that could be worked around."""

from __future__ import annotations


class CaptureWarning(UserWarning):
    """A capture file has a fault that could be worked around; the message says how."""
