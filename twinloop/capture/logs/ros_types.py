"""Decoders of the standard ROS messages by definitions that ship with ``rosbags``.

Definitions in a file are not used: the library turns them into Python code.  Those of the messages
read here have not changed since they exist.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from twinloop.extras import require

TF_DEFINITION = "geometry_msgs/TransformStamped[] transforms"
"""``tf2_msgs/TFMessage``, which ROS 1 keeps apart from the common messages."""

LARGEST_RATIO = 100
"""Unpacked by packed size of a log's chunks up to which they are believed."""
ALWAYS_UNPACKED = 128 * 2**20
"""Bytes that chunks may unpack to whatever their ratio."""


def bomb(packed: int, unpacked: int) -> str:
    """Why chunks of so many bytes are not read any further; "" where nothing is wrong.

    Numbers of a robot that stands still pack 30 to 1; messages that are all alike 10 000 to 1, and
    a small file of them would fill the memory.
    """
    if unpacked <= max(ALWAYS_UNPACKED, LARGEST_RATIO * packed):
        return ""
    return f"chunks of {packed} bytes unpack to over {unpacked}, {LARGEST_RATIO} times as much"


@cache
def _store(ros1: bool) -> Any:
    typesys = require("rosbags.typesys", "logs", "a ROS bag")
    stores = typesys.Stores
    store = typesys.get_typestore(stores.ROS1_NOETIC if ros1 else stores.ROS2_HUMBLE)
    if ros1:
        for name in ("tf2_msgs/msg/TFMessage", "tf/msg/tfMessage"):
            store.register(typesys.get_types_from_msg(TF_DEFINITION, name))
    return store


def decoder_of(kind: str, ros1: bool) -> Callable[[bytes], Any]:
    """Function that decodes messages of type ``kind`` (``sensor_msgs/msg/JointState``).

    Raises:
        MachineError: ``rosbags`` is not installed.
    """
    store = _store(ros1)
    decode = store.deserialize_ros1 if ros1 else store.deserialize_cdr
    return lambda data: decode(data, kind)


def checksum(kind: str) -> str:
    """MD5 sum by which ROS 1 tells versions of a message type apart."""
    return str(_store(True).generate_msgdef(kind)[1])
