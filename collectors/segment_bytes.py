"""The bytes of one segment: finding its records, and the next good one after damage."""

import os
import re
import struct
from pathlib import Path
from zlib import crc32

HEADER = struct.Struct("<II")  # a record's length and its CRC-32
_MAX_RECORD = 64 * 1024 * 1024
_NOT_ZERO = re.compile(rb"[^\0]")


def framed(payload: bytes) -> bytes:
    """A record as it stands in a segment."""
    return HEADER.pack(len(payload), crc32(payload)) + payload


def open_segment(path: Path) -> int:
    """A descriptor; -1 where there is nothing to read: its records are damaged then."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def record_at(descriptor: int, offset: int, size: int) -> bytes | None:
    """The record at an offset; None where there is no good one."""
    try:
        header = os.pread(descriptor, HEADER.size, offset)
        if len(header) < HEADER.size:
            return None
        length, checksum = HEADER.unpack(header)
        # A run of zeros, as a crash may leave, is no record though its checksum fits.
        if not 0 < length <= min(_MAX_RECORD, size - offset - HEADER.size):
            return None
        payload = os.pread(descriptor, length, offset + HEADER.size)
    except OSError:
        return None
    return payload if len(payload) == length and crc32(payload) == checksum else None


def resync(descriptor: int, offset: int, size: int) -> int:
    """Where the next good record after a broken one begins; `size` where there is none."""
    try:
        data = os.pread(descriptor, size - offset, offset)
    except OSError:
        return size
    # A length's highest byte is zero (no segment has 16 MB), and a record of JSON text holds no zero.
    zero = data.find(b"\0", 4)
    while 0 <= zero <= len(data) - 5:
        length, checksum = HEADER.unpack_from(data, zero - 3)
        start = zero - 3 + HEADER.size
        if 0 < length <= len(data) - start and crc32(memoryview(data)[start : start + length]) == checksum:
            return offset + zero - 3
        after = _NOT_ZERO.search(data, zero + 1)
        if after is None:
            break
        zero = data.find(b"\0", max(zero + 1, after.start() + 1) if length == 0 else zero + 1)
    return size
