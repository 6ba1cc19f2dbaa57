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
