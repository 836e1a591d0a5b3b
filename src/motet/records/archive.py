"""An append-only file of groups that survives being cut off while it is written.

    b"MOTETAR2", then for each group:  length u32 | crc32 of the payload | crc32 of these 8 bytes | payload of `wire`

All numbers little endian. Payloads hold exact log-probs: a replay starts from what was sampled. The check on the length
tells a torn end from damage: a whole frame whose payload runs past the end of the file, or fails its checksum right at
the end, was cut off; anything else that does not fit is damage. The last character of the magic is the version.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from motet.errors import RunFailed, UsageError, WireError
from motet.records.rollout import Group
from motet.records.wire import WireLimits, decode_group, encode_group

_MAGIC = b"MOTETAR2"
_FRAME = struct.Struct("<II")
_CHECK = struct.Struct("<I")
_FRAME_SIZE = _FRAME.size + _CHECK.size
ARCHIVE_LIMITS = WireLimits(
    max_payload_bytes=2**32, max_group_size=2**20, max_completion_tokens=2**32, max_name_bytes=2**16
)
"""An archive is our own file: what was once admitted under wider limits must still be readable."""


class Archive:
    """A file to which groups are appended; a context manager."""

    def __init__(self, path: Path, *, keep_bytes: int | None = None) -> None:
        """Open a file to continue it after its last whole group; a torn last one is cut off.

        Args:
            path: made, with its folder, if it is missing and `keep_bytes` is not given.
            keep_bytes: continue after this `position` of an earlier run and cut off whatever follows.

        Raises:
            UsageError: E-ARCHIVE-03, not an archive, or one of another version.
            RunFailed: E-ARCHIVE-01, damaged; E-ARCHIVE-04, no file, or no group ends at `keep_bytes`.
        """
        if keep_bytes is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        elif not path.exists():
            raise RunFailed(f"{path}: the archive of this run is gone; it cannot be resumed", code="E-ARCHIVE-04")
        self._file = path.open("r+b")
        try:
            self._position = self._last_end(path, keep_bytes)
            self._file.truncate(self._position)
            self._file.seek(self._position)
            if self._position == 0:
                self._write(_MAGIC)
        except BaseException:
            self._file.close()
            raise

    def append(self, group: Group) -> None:
        """Write one group through to the operating system."""
        payload = encode_group(group, log_probs="exact")
        frame = _FRAME.pack(len(payload), zlib.crc32(payload))
        self._write(frame + _CHECK.pack(zlib.crc32(frame)) + payload)

    def position(self) -> int:
        """Bytes up to the end of the last group: what to hand over as `keep_bytes` when resuming from here."""
        return self._position

    def sync(self) -> None:
        """Wait until the disk holds everything: a checkpoint may then name this position."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file. Calling it twice is harmless."""
        self._file.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        self._position += len(data)

    def _last_end(self, path: Path, keep_bytes: int | None) -> int:
        """Offset after the last group to keep; 0 if not even the magic is whole."""
        end = _check_magic(self._file, path)
        if keep_bytes is not None and end == keep_bytes:
            return end
        for offset, payload in _payloads(self._file, path):
            end = offset + _FRAME_SIZE + len(payload)
            if end == keep_bytes:
                return end
        if keep_bytes is not None:
            raise RunFailed(
                f"{path}: no group ends at byte {keep_bytes} (the last whole one ends at {end}): "
                "the archive is not the one that the checkpoint was written with; resume from an older checkpoint",
                code="E-ARCHIVE-04",
            )
        return end


def read_archive(path: Path) -> Iterator[Group]:
    """All whole groups in order; ends silently before a torn last one.

    Raises:
        UsageError: E-ARCHIVE-02, no such file; E-ARCHIVE-03, not an archive, or one of another version.
        RunFailed: E-ARCHIVE-01, damaged; the message names the file and the offset.
    """
    for _, group in scan_archive(path):
        yield group


def scan_archive(path: Path) -> Iterator[tuple[int, Group]]:
    """As `read_archive`, each group with its offset, at which `read_groups` finds it again."""
    with _open(path) as file:
        _check_magic(file, path)
        for offset, payload in _payloads(file, path):
            yield offset, _decoded(payload, path, offset)


def read_groups(path: Path, offsets: Iterable[int]) -> Iterator[Group]:
    """The groups at some offsets of `scan_archive`. Raises as `read_archive`, also if none is there any more."""
    with _open(path) as file:
        for offset in offsets:
            file.seek(offset)
            found = next(_payloads(file, path), None)
            if found is None:
                raise _damage(path, offset, "a record that was there is gone")
            yield _decoded(found[1], path, offset)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such archive", code="E-ARCHIVE-02") from error


def _decoded(payload: bytes, path: Path, offset: int) -> Group:
    try:
        return decode_group(payload, ARCHIVE_LIMITS, archived=True)
    except WireError as error:
        raise _damage(path, offset, str(error)) from error


def _check_magic(file: BinaryIO, path: Path) -> int:
    """Read past the magic and return its size; 0 if the file ends within it."""
    start = file.read(len(_MAGIC))
    if start[:-1] == _MAGIC[:-1] and start != _MAGIC:
        raise UsageError(
            f"{path}: an archive of another version of motet (this one has {_MAGIC.decode()}): "
            "use the motet that wrote it, or start anew under another run.name",
            code="E-ARCHIVE-03",
        )
    if not _MAGIC.startswith(start):
        raise UsageError(f"{path}: not an archive of groups (it does not begin like one)", code="E-ARCHIVE-03")
    return len(_MAGIC) if start == _MAGIC else 0


def _payloads(file: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    """Offset and payload of each whole record from here on."""
    size = os.fstat(file.fileno()).st_size
    offset = file.tell()
    while len(head := file.read(_FRAME_SIZE)) == _FRAME_SIZE:
        frame, check = head[: _FRAME.size], head[_FRAME.size :]
        if zlib.crc32(frame) != _CHECK.unpack(check)[0]:
            if _only_zeros(head, file):
                return  # a file system that grew the file before it wrote the data
            raise _damage(path, offset, "a record's length fails its checksum")
        length, checksum = _FRAME.unpack(frame)
        end = offset + _FRAME_SIZE + length
        if end > size:
            return
        payload = file.read(length)
        if zlib.crc32(payload) != checksum:
            if end == size:
                return
            raise _damage(path, offset, "a record fails its checksum")
        yield offset, payload
        offset = end


def _only_zeros(head: bytes, file: BinaryIO) -> bool:
    if any(head):
        return False
    while chunk := file.read(1 << 20):
        if any(chunk):
            return False
    return True


def _damage(path: Path, offset: int, what: str) -> RunFailed:
    return RunFailed(
        f"{path}: damaged at byte {offset}: {what}. Groups before it can be read; restore the file from a copy",
        code="E-ARCHIVE-01",
    )
