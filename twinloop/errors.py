"""Errors that say what is wrong, where, what was expected and what to do.

The command line turns each class into an exit code (see ``exit_code``):
2 wrong input or usage, 3 the machine lacks something, 4 the cache or an artifact is unsound.
"""

from __future__ import annotations


class TwinloopError(Exception):
    """Base of all errors that a user can act on."""

    exit_code = 1


class InputError(TwinloopError):
    """A capture, file or argument is not what it has to be."""

    exit_code = 2


class ParamsError(TwinloopError):
    """A parameter is unknown, of the wrong type or out of range."""

    exit_code = 2


class ArtifactError(TwinloopError):
    """An artifact does not follow its schema, or cannot be read."""

    exit_code = 4


class MachineError(TwinloopError):
    """The machine lacks something: a GL library, disk space, a library version."""

    exit_code = 3
