"""What a plugin remembers: the state of each command. The file's format is that of the Go kit."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from ..canonical import decode, encode
from ._answers import is_definite, is_retryable, moment, now

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

log = logging.getLogger("worldengine.plugin")

# The first line of a memory's file. A file without it is not changed.
_HEADER = b'{"memory":"worldengine-plugin.v1"}\n'
# The least number of lines at which a file is made shorter.
_FEWEST_LINES = 1024


class MemoryFailed(Exception):
    """The base of the errors of a memory."""


class NotAMemory(MemoryFailed):
    """The file is no memory, and was not changed. Give another path."""


class CorruptMemory(MemoryFailed):
    """The memory's file is damaged before its last line, so not by a crash.

    Restore the file. Or move it away, so that its ids are forgotten, and compare the game with the
    engine's towns.
    """


class LockedMemory(MemoryFailed):
    """Another process, or an unfinished plugin, uses the memory. End it first."""


class BrokenMemory(MemoryFailed):
    """The memory's file can no longer be written, and no command is begun.

    Make room on the disk, and open the memory again.
    """


class Record(NamedTuple):
    """A command's state."""

    apply_id: str
    town_id: str
    attempt: int
    """The logical attempt in which the command was last begun or answered."""
    at: datetime
    answer: Mapping[str, Any] | None = None
    """The outcome. It is None while the command is begun or in doubt, and busy if the command
    turned out not to be begun."""

    @property
    def begun(self) -> bool:
        """Whether the command is begun and its outcome is not known."""
        return self.answer is None

    def answer_to(self, attempt: int) -> Mapping[str, Any] | None:
        """Return the remembered answer to a request of a logical attempt, if there is one."""
        if self.answer is None or not is_definite(self.answer):
            return None
        if is_retryable(self.answer) and attempt != self.attempt:
            return None
        return self.answer


class Memory(Protocol):
    """Remembers the outcomes of commands."""

    def get(self, apply_id: str) -> Record | None:
        """Return the last record of an id. It is called for every request: it must not wait."""

    def put(self, record: Record) -> None:
        """Replace the record of an id. When it returns, the record survives the process's end.

        It is called in a thread, one call at a time.
        """

    def close(self) -> None:
        """Release the memory."""


class VolatileMemory:
    """A memory that does not survive the process, for tests and toys."""

    def __init__(
        self, *, max_records: int = 20_000, retention: timedelta = timedelta(days=30)
    ) -> None:
        self._most, self._retention = max_records, retention
        self._records: dict[str, Record] = {}  # in the order in which the ids were first put
        self._changing = threading.Lock()

    def get(self, apply_id: str) -> Record | None:
        """Return the last record of an id."""
        return self._records.get(apply_id)

    def put(self, record: Record) -> None:
        """Replace the record of an id."""
        with self._changing:
            self._keep(record, now())

    def close(self) -> None:
        """Release nothing."""

    @property
    def begun(self) -> list[Record]:
        """The commands in doubt, the oldest first. The engine asks again unless it has given up."""
        with self._changing:
            return [record for record in self._records.values() if record.begun]

    def _keep(self, record: Record, at: datetime) -> None:
        """Add a record, and drop those that are too old or too many.

        A command in doubt is dropped only if it is too old.
        """
        self._records[record.apply_id] = record
        for _ in range(len(self._records)):
            oldest = next(iter(self._records.values()))
            expired = at - oldest.at > self._retention
            if not expired and len(self._records) <= self._most:
                return
            del self._records[oldest.apply_id]
            if oldest.begun and not expired:
                self._records[oldest.apply_id] = oldest


class FileMemory(VolatileMemory):
    """A memory in a file with a line of JSON for each record; the last line of an id counts.

    ``put`` appends a line and syncs. When most lines are superseded, the file is replaced by a
    shorter one. A torn last line is dropped: a crash tore it before its ``put`` returned. The file
    is locked against other processes, by its path with ``.lock``, until ``close`` or the end of the
    process; a forked child may not use it.

    Beyond ``max_records`` commands, or ``retention``, the oldest are forgotten. A forgotten command
    would be applied again, so the retention must be longer than an engine may be away.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        max_records: int = 20_000,
        retention: timedelta = timedelta(days=30),
    ) -> None:
        super().__init__(max_records=max_records, retention=retention)
        self.path = Path(path)
        self._pid = os.getpid()
        self._broken: MemoryFailed | None = None
        self._lines, self._compact_at = 0, _FEWEST_LINES
        self._file: IO[bytes] | None = None
        self._lock = _locked(self.path)
        try:
            self._load()
        except BaseException:
            self._lock.close()
            raise

    def put(self, record: Record) -> None:
        """Write a record, and return when it is on disk."""
        line = _line(record)
        with self._changing:
            if os.getpid() != self._pid:
                raise BrokenMemory("this process was forked: the memory is the parent's")
            self._append(line)
            self._keep(record, now())
            self._lines += 1
            if self._lines >= self._compact_at:
                self._compact()

    def close(self) -> None:
        """Close the file. Later calls of ``put`` raise BrokenMemory."""
        with self._changing:
            if self._file is None:
                return
            self._file.close()
            self._file, self._broken = None, BrokenMemory(f"{self.path} is closed")
            self._lock.close()

    def _load(self) -> None:
        data = self.path.read_bytes() if self.path.exists() else b""
        whole = self._replay(data) if data else 0
        if whole < len(data):
            log.warning(
                "the last record of the memory %s was torn by a crash and is dropped: %d bytes",
                self.path,
                len(data) - whole,
            )
        if whole == 0 or whole < len(data):
            self._rewrite()
        self._file = self.path.open("ab", buffering=0)

    def _replay(self, data: bytes) -> int:
        """Read the lines of a file, and return their size without a torn last line."""
        if not data.startswith(_HEADER):
            raise NotAMemory(f"{self.path} is not a plugin's memory")
        whole = len(_HEADER)
        for line in data[whole:].splitlines(keepends=True):
            try:
                record = _record(line)
            except (ValueError, TypeError, LookupError) as error:
                if whole + len(line) == len(data):
                    break  # the last line, torn
                raise CorruptMemory(f"{self.path} at byte {whole}: {error}") from error
            if not line.endswith(b"\n"):
                break
            self._keep(record, now())
            whole += len(line)
            self._lines += 1
        self._compact_at = max(4 * len(self._records), _FEWEST_LINES)
        return whole

    def _append(self, line: bytes) -> None:
        if self._broken:
            raise self._broken
        assert self._file
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError("the disk took a part of the line")
        except OSError as error:
            # A part of the line may be on disk, and the next line must not follow it.
            try:
                self._file.truncate(size)
            except OSError:
                self._broken = BrokenMemory(f"{self.path}: {error}")
            raise MemoryFailed(f"{self.path} cannot be written: {error}") from error
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            # The state of the disk is unknown; a second sync may succeed without having written.
            self._broken = BrokenMemory(f"{self.path}: {error}")
            raise self._broken from error

    def _compact(self) -> None:
        """Write the file anew. If that fails, the old file stays in use."""
        assert self._file
        self._file.close()  # Windows does not rename over an open file
        try:
            self._rewrite()
        except OSError as error:
            self._compact_at = 2 * self._lines  # or every later line would try again
            log.error("the memory %s could not be written anew: %s", self.path, error)
        try:
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            self._broken = BrokenMemory(f"{self.path}: {error}")

    def _rewrite(self) -> None:
        """Atomically replace the file by one without superseded records."""
        fresh = self.path.with_name(self.path.name + ".new")
        with fresh.open("wb") as out:
            out.write(_HEADER)
            out.writelines(_line(record) for record in self._records.values())
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(self.path)
        _sync_directory(self.path.parent)
        self._lines = len(self._records)
        self._compact_at = max(4 * self._lines, _FEWEST_LINES)


def _line(record: Record) -> bytes:
    at = record.at.isoformat().replace("+00:00", "Z")
    value: dict[str, Any] = {
        "applyId": record.apply_id, "townId": record.town_id, "attempt": record.attempt, "at": at,
    }  # fmt: skip
    if record.answer is not None:
        value["answer"] = record.answer
    return encode(value) + b"\n"


def _record(line: bytes) -> Record:
    value = decode(line)
    if not value["applyId"]:
        raise ValueError("a record without an applyId")
    answer = value.get("answer")
    if answer is not None:
        is_definite(answer)  # it has a status
    return Record(value["applyId"], value["townId"], value["attempt"], moment(value["at"]), answer)


def _locked(path: Path) -> IO[bytes]:
    """Lock a file against other processes until it is closed or the process ends.

    The file is not removed: otherwise two processes could lock two files of one name.
    """
    name = path.with_name(path.name + ".lock")
    file = name.open("ab")
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise LockedMemory(
            f"another process, or an unfinished plugin of this one, uses {path}: end it first"
        ) from error
    return file


def _sync_directory(directory: Path) -> None:
    """Make the name of a file that was renamed durable."""
    if sys.platform == "win32":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems know no sync of a directory
            os.fsync(handle)
    finally:
        os.close(handle)
