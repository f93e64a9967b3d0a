"""What the files of a checkpoint tell by themselves: whether one is cut short, and which others belong to it.

    found = content_of("__0_0.distcp", file, size)       # FileContent(cut=None, named={})
    found = content_of(".metadata", file, size)          # FileContent(named={"__0_0.distcp": 4096, ...})

Nothing is loaded and nothing executed: a checkpoint is what a job's user wrote. Read are the end of a zip (`torch.save`
since 1.6, Lightning's .ckpt), the header of a safetensors file, the index of a sharded one, and of torch's distributed
checkpoints the pickle `.metadata` by a reader that builds no object (`parsers/dumps/pickled.py`). All is bounded; what
is larger, or of another form, tells nothing.

Sources: PKWARE's APPNOTE 4.3.14 to 4.3.16; github.com/huggingface/safetensors, "Format"; transformers'
SAFE_WEIGHTS_INDEX_NAME; torch/distributed/checkpoint/filesystem.py (_StorageInfo) of PyTorch 2.2 to 2.13.
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeGuard

import orjson

from parsers.dumps.pickled import PickledObject, PickleRefusedError, plain_value

_ZIP = b"PK\x03\x04"
_END, _END_64, _LOCATOR_64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_END_BYTES, _END_64_BYTES, _LOCATOR_BYTES = 22, 56, 20
_COMMENT_BYTES = 65_535
_NOT_HERE = 0xFFFFFFFF  # the figure stands in the directory's end of 64 bits
# A header or index of more is not read: a sidecar has 128 MB, and a hostile one takes some thirty times its bytes.
_MOST_JSON = 1024 * 1024
# A `.metadata` of so much is read as it is; of a larger one, up to the next bound, the names of files alone.
_MOST_PICKLE = 512 * 1024
_MOST_SCANNED = 64 * 1024 * 1024
_CHUNK = 1024 * 1024
_SHARD = re.compile(rb"__\d{1,9}_\d{1,9}\.distcp", re.ASCII)
_LONGEST_SHARD = 32
_MOST_NAMED = 20_000
_LONGEST_NAME = 255  # of a file on Linux, in bytes
_INDEX = (".safetensors.index.json", ".bin.index.json")
METADATA = ".metadata"
# What is worth opening, by the ends of names.
_ENDINGS = (*_INDEX, ".safetensors", ".ckpt", ".pt", ".pth", ".bin")


@dataclass(frozen=True, slots=True)
class FileContent:
    """`cut` = it ends too early (True), or is whole (False); None where its form does not tell.

    `named` = the files beside it that belong to the checkpoint, each with the bytes that it must have at least.
    """

    cut: bool | None = None
    named: Mapping[str, int] = field(default_factory=dict)


_NOTHING = FileContent()


def tells(name: str) -> bool:
    """Whether a file of this name is worth opening."""
    return name == METADATA or name.endswith(_ENDINGS)


def most_read(name: str, size: int) -> int:
    """At most how many bytes of a file are read."""
    if name == METADATA:
        return min(size, _MOST_SCANNED)
    return min(size, _COMMENT_BYTES if name.endswith(_ENDINGS[3:]) else _MOST_JSON)


def content_of(name: str, file: BinaryIO, size: int) -> FileContent:
    """What a file tells by its form.

    Args:
        file: open for reading, seekable.
        size: its bytes.

    Raises:
        OSError: it cannot be read.
    """
    if name == METADATA:
        return _metadata(file, size)
    if name.endswith(_INDEX):
        return _index(file.read(_MOST_JSON), size)
    if name.endswith(".safetensors"):
        return FileContent(cut=_safetensors_cut(file, size))
    return FileContent(cut=_zip_cut(file, size))


def _zip_cut(file: BinaryIO, size: int) -> bool | None:
    """Whether a zip lacks its directory, which is written last; None of what is no zip."""
    if file.read(len(_ZIP)) != _ZIP:
        return True if size == 0 else None
    begin = max(0, size - _COMMENT_BYTES - _END_BYTES - _LOCATOR_BYTES - _END_64_BYTES)
    file.seek(begin)
    tail = file.read(size - begin)
    at = tail.rfind(_END)
    if at < 0 or at + _END_BYTES > len(tail):
        return True
    length, start = struct.unpack_from("<II", tail, at + 12)
    end = begin + at
    if _NOT_HERE in (length, start) or tail[max(0, at - _LOCATOR_BYTES) : at].startswith(_LOCATOR_64):
        at = tail.rfind(_END_64, 0, at)
        if at < 0 or at + _END_64_BYTES > len(tail):
            return True
        length, start = struct.unpack_from("<QQ", tail, at + 40)
        end = begin + at
    return bool(start + length != end)


def _safetensors_cut(file: BinaryIO, size: int) -> bool | None:
    """Whether a file ends before its last tensor; None where its header is too large to be read."""
    first = file.read(8)
    if len(first) < 8:
        return True
    length = int.from_bytes(first, "little")
    if 8 + length > size:
        return True
    if length > _MOST_JSON:
        return None
    header = _json(file.read(length))
    ends = [_end_of(one) for name, one in header.items() if name != "__metadata__"]
    return None if not ends or None in ends else 8 + length + max(end or 0 for end in ends) != size


def _end_of(tensor: Any) -> int | None:
    offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    end = offsets[1] if isinstance(offsets, list) and len(offsets) == 2 else None
    return end if isinstance(end, int) and end >= 0 else None


def _index(data: bytes, size: int) -> FileContent:
    """The shards that a Hugging Face index names."""
    if size > _MOST_JSON:
        return _NOTHING
    index = _json(data)
    shards = index.get("weight_map")
    if not isinstance(shards, dict):
        return FileContent(cut=True) if not index else _NOTHING
    return FileContent(named={one: 1 for one in list(shards.values())[:_MOST_NAMED] if _is_name(one)})


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME


def _json(data: bytes) -> dict[str, Any]:
    """A JSON object; empty where it is none."""
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _metadata(file: BinaryIO, size: int) -> FileContent:
    """The files of a distributed checkpoint, and how far each is used."""
    if size > _MOST_PICKLE:
        return FileContent(named=dict.fromkeys(_shards(file), 1))
    try:
        found = plain_value(file.read(_MOST_PICKLE), named=True)
    except PickleRefusedError as refused:
        return FileContent(cut=True) if "cut short" in str(refused) else _NOTHING
    stored = found.fields.get("storage_data") if isinstance(found, PickledObject) else None
    named: dict[str, int] = {}
    for one in list(stored.values())[:_MOST_NAMED] if isinstance(stored, dict) else ():
        place = one.fields if isinstance(one, PickledObject) else {}
        name, offset, length = (place.get(key) for key in ("relative_path", "offset", "length"))
        if _is_name(name) and isinstance(offset, int) and isinstance(length, int):
            named[name] = max(named.get(name, 0), offset + length)
    return FileContent(named=named)


def _shards(file: BinaryIO) -> set[str]:
    """The names of data files in a large pickle, as its bytes have them."""
    found: set[str] = set()
    rest, read = b"", 0
    while read < _MOST_SCANNED and len(found) < _MOST_NAMED and (data := file.read(_CHUNK)):
        read += len(data)
        found |= {one.decode() for one in _SHARD.findall(rest + data)}
        rest = data[-_LONGEST_SHARD:]
    return found
