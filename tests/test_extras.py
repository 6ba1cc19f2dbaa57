"""Optional libraries: the error names the extra; first-party modules are no extras."""

from __future__ import annotations

import pytest

from twinloop.errors import MachineError
from twinloop.extras import optional_packages, require


def test_a_missing_library_names_the_command() -> None:
    """The message says what needs it and how to install it."""
    with pytest.raises(MachineError, match=r"photos in HEIC .*pip install -e '\.\[photos\]'"):
        require("no_such_library", "photos", "photos in HEIC")


def test_only_libraries() -> None:
    """A first-party module by name would escape the list of a stage's code."""
    with pytest.raises(ValueError, match="import it by a statement"):
        require("twinloop.card", "photos", "nothing")


def test_core_packages_are_not_optional() -> None:
    """Extras are found in the metadata; what the core needs is not among them."""
    found = optional_packages()
    assert {"pycolmap", "rosbags", "h5py"} <= found
    assert not {"numpy", "av", "pillow"} & found
