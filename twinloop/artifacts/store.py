"""Write and read artifacts: Zarr v3, sharded, deterministic bytes, whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numcodecs import Blosc, Zstd
from zarr.codecs import BloscCodec, BloscShuffle, ZstdCodec

from twinloop.artifacts.migrate import migrate
from twinloop.artifacts.packing import pack, unpack
from twinloop.artifacts.schema import ArraySpec, ArtifactSchema, validate
from twinloop.beside import clear_killed, prefix
from twinloop.errors import ArtifactError, MachineError

MAX_FILES = 200
"""Most files in one artifact: DVC's time grows with the number of files, not of bytes."""


def write_artifact(
    path: Path,
    schema: ArtifactSchema,
    groups: Mapping[str, xr.Dataset],
    attrs: Mapping[str, Any] | None = None,
) -> None:
    """Validate ``groups`` and write them to ``path``, atomically and with the same bytes each time.

    Args:
        path: Folder of the artifact, ``datasets/mug/track.zarr``; replaced if it exists.
        schema: The artifact's kind.
        groups: Dataset per group path ("/" is the root).
        attrs: More attributes of the root; must not hold times, hosts or paths.

    Raises:
        ArtifactError: The data breaks the schema.
        MachineError: The disk is full.
    """
    tree = _described(schema, groups, attrs or {})
    validate(tree, schema, str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_killed(path.parent)
    beside = Path(tempfile.mkdtemp(prefix=prefix(path.name), dir=path.parent))
    try:
        fresh = beside / path.name
        packed = pack(tree, schema)
        packed.to_zarr(
            fresh, mode="w", zarr_format=3, consolidated=False, encoding=_encoding(packed, schema)
        )
        _sort_metadata(fresh)
        files = [p for p in fresh.rglob("*") if p.is_file()]
        if len(files) > MAX_FILES:
            raise ArtifactError(
                f"{path} would have {len(files)} files, at most {MAX_FILES} are allowed; "
                "raise `shard` of its largest array in the schema."
            )
        replace_tree(fresh, path)
    except OSError as error:
        raise disk_error(error, path) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def open_artifact(path: Path, schema: ArtifactSchema, *, values: bool = False) -> xr.DataTree:
    """Open an artifact lazily, check it, and migrate it when it is of an older major version.

    Args:
        path: Folder of the artifact.
        schema: The kind that the caller understands.
        values: True checks every value as well, which reads the whole artifact.

    Raises:
        ArtifactError: Missing, unreadable, of another kind, too new, or against its schema.
    """
    if not path.is_dir():
        raise ArtifactError(f"{path} does not exist; build it with `dvc repro` (or `dvc pull` it).")
    try:
        tree = xr.open_datatree(path, engine="zarr", consolidated=False, chunks=None)
    except Exception as error:  # zarr and xarray raise a dozen kinds for a damaged store
        raise ArtifactError(
            f"{path} cannot be read as Zarr ({type(error).__name__}: {error}); "
            "it is damaged or not an artifact. `dvc checkout --force` restores it from the cache."
        ) from error
    kind = tree.attrs.get("schema")
    if kind != schema.name:
        raise ArtifactError(f"{path} holds {kind!r}, expected {schema.name!r}.")
    _refuse_bombs(tree, path)
    tree = unpack(tree, str(path))
    tree = migrate(tree, schema, str(path))
    try:
        validate(tree, schema, str(path), values=values)
    except ArtifactError:
        raise
    except Exception as error:  # a damaged chunk: codecs raise errors of their own
        raise ArtifactError(
            f"{path} is damaged, a chunk cannot be decoded ({type(error).__name__}: {error}); "
            "`dvc checkout --force` restores it from the cache."
        ) from error
    return tree


def _refuse_bombs(tree: xr.DataTree, path: Path) -> None:
    """Refuse a store whose headers claim far more data than its files can hold.

    A header costs nothing to forge, and reading it would fill the memory.  Zstandard reaches a
    few thousand to one on constant data, hence the generous factor.
    """
    stored = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    claimed = sum(int(array.nbytes) for node in tree.subtree for array in node.variables.values())
    if claimed > 4000 * stored + 100_000_000:
        raise ArtifactError(
            f"{path}: headers claim {claimed / 1e9:.1f} GB but the files hold "
            f"{stored / 1e6:.3f} MB; refused, because reading it would fill the memory."
        )


def replace_tree(fresh: Path, path: Path) -> None:
    """Put the folder ``fresh`` in the place of ``path``: fsync, then rename.

    A crash leaves the old tree or the new one, never a mixture (the old one is moved aside first,
    because a rename cannot replace a folder that is not empty).
    """
    for file in sorted(p for p in fresh.rglob("*") if p.is_file()):
        fsync(file)
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        path.rename(old)
    fresh.rename(path)
    fsync(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def fsync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_error(error: OSError, path: Path) -> Exception:
    """Return an error that says what to do about a full disk, else ``error`` itself."""
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return MachineError(
            f"no space left while writing {path} ({error.strerror}); free some space, for example "
            "with `dvc gc --workspace`, or raise the limit, and run again. Nothing was changed."
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return MachineError(
            f"{path} cannot be written ({error.strerror}); make its folder writable and run again. "
            "Nothing was changed."
        )
    return error


def _described(
    schema: ArtifactSchema, groups: Mapping[str, xr.Dataset], attrs: Mapping[str, Any]
) -> xr.DataTree:
    named: dict[str, xr.Dataset] = {}
    for path, dataset in groups.items():
        key = path.strip("/") or "/"
        declared = schema.group_of(key)
        copy = dataset.copy()
        copy.attrs = _canonical(dict(dataset.attrs))
        for name, variable in copy.variables.items():
            spec = declared.arrays.get(str(name)) if declared else None
            own = dict(variable.attrs)
            if spec is not None:
                # What the caller states is kept, so that validation sees a contradiction.
                own = {"units": spec.units, "frame": spec.frame} | variable.attrs
                own["long_name"] = spec.description
                own = {k: v for k, v in own.items() if v is not None}
            variable.attrs = _canonical(own)
            variable.encoding = {}
        named["/" if key == "/" else f"/{key}"] = copy
    root = named.setdefault("/", xr.Dataset())
    root.attrs = _canonical(
        {**root.attrs, **attrs, "schema": schema.name, "schema_version": schema.version}
    )
    return xr.DataTree.from_dict(dict(sorted(named.items())))


def _canonical(attrs: dict[str, Any]) -> dict[str, Any]:
    """Plain JSON values with sorted keys: the order of attributes is part of the bytes."""
    plain = json.loads(json.dumps(attrs, sort_keys=True, default=_plain))
    return dict(plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"attribute of type {type(value).__name__} cannot be stored")


def _encoding(tree: xr.DataTree, schema: ArtifactSchema) -> dict[str, dict[str, Any]]:
    encoding: dict[str, dict[str, Any]] = {}
    for node in tree.subtree:
        group = schema.group_of(node.path) or schema.groups.get(f"{node.path.strip('/')}_")
        for name, array in node.to_dataset(inherit=False).variables.items():
            spec = group.arrays.get(str(name)) if group else None
            encoding.setdefault(node.path, {})[str(name)] = _array_encoding(array, spec)
    return encoding


def _array_encoding(array: xr.Variable, spec: ArraySpec | None) -> dict[str, Any]:
    image = array.dtype == np.uint8 and array.ndim >= 3
    compressor: Any = _image_codec(array) if image else ZstdCodec(level=3)
    encoding: dict[str, Any] = {"compressors": [compressor], "_FillValue": None}
    if array.ndim == 0 or 0 in array.shape:
        return encoding
    wanted = spec.chunk if spec else {}
    chunks = tuple(
        min(wanted.get(str(dim), size), size)
        for dim, size in zip(array.dims, array.shape, strict=True)
    )
    encoding["chunks"] = chunks
    if spec and chunks != array.shape:
        encoding["shards"] = tuple(
            chunk * min(spec.shard, -(-size // chunk)) if chunk < size else chunk
            for chunk, size in zip(chunks, array.shape, strict=True)
        )
    return encoding


def _image_codec(array: xr.Variable) -> Any:
    """The better of two codecs that every Zarr reader has, tried on the middle picture.

    Sorting bits helps where the low ones are noise (photographs), not where colours repeat
    (rendered pictures, masks).
    """
    if 0 in array.shape:
        return ZstdCodec(level=5)
    picture = np.ascontiguousarray(array[array.shape[0] // 2].to_numpy())
    shuffled = len(Blosc("zstd", clevel=5, shuffle=Blosc.BITSHUFFLE).encode(picture))
    if shuffled < len(Zstd(level=5).encode(picture)):
        return BloscCodec(cname="zstd", clevel=5, shuffle=BloscShuffle.bitshuffle, typesize=1)
    return ZstdCodec(level=5)


def _sort_metadata(store: Path) -> None:
    """Rewrite each zarr.json with sorted keys: identical bytes whatever the insertion order."""
    for meta in sorted(store.rglob("zarr.json")):
        content = json.loads(meta.read_text())
        meta.write_text(json.dumps(content, sort_keys=True, indent=1, allow_nan=True) + "\n")
