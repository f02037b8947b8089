"""A pytest plugin: a world for each test, and fixtures of handoffs, recorded and replayed.

::

    @pytest.mark.handoffd(world_file="worlds/frontier.json")
    async def test_the_wall_grows(world):
        async with world.connect() as engine:
            ...

    @pytest.mark.parametrize("file", worldengine.testing.fixture_files("fixtures"))
    def test_decisions(handoffctl, file):
        worldengine.testing.replay(handoffctl, file)

The programs are ``handoffd`` and ``handoffctl`` of the options ``--handoffd`` and ``--handoffctl``,
of the variables ``HANDOFFD`` and ``HANDOFFCTL``, or of the PATH. Override the session fixtures
``handoffd`` and ``handoffctl`` to build them.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import client, sync

__all__ = ["World", "fixture_files", "handoffctl", "handoffd", "replay", "world"]

_START = 60.0
_STOP = 30.0


class World:
    """A server of one world on a free port of this machine, with its data in a directory.

    It keeps its port and its data when it is stopped and started again.
    """

    def __init__(self, program: str | Path, directory: Path, handoffctl: str | None = None) -> None:
        self.program, self.directory = str(program), directory
        self.data = directory / "data"
        self.address = _free_address()
        self.url = f"nats://{self.address}"
        self._handoffctl = handoffctl
        self._process: subprocess.Popen[bytes] | None = None
        self._flags: list[str] = []

    @property
    def log(self) -> str:
        """What the server has printed since its last start."""
        path = self.directory / "handoffd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, *flags: str, world_file: str | Path | None = None) -> World:
        """Start the server, and return when it serves.

        ``flags`` are further ones of ``handoffd``; without any the last ones hold. If it does not
        start, it raises RuntimeError with what it printed.
        """
        if flags or world_file:
            given = ["--world-file", str(world_file)] if world_file else []
            self._flags = [*given, *flags]
        if self._process and self._process.poll() is None:
            raise RuntimeError("the world has a server already: stop it first")
        command = [self.program, "--listen", self.address, "--data", str(self.data)]
        command += ["--http", "off", "--log-level", "ERROR", *self._flags]
        with (self.directory / "handoffd.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        until = time.monotonic() + _START
        while not any(line.startswith("ready ") for line in self.log.splitlines()):
            if self._process.poll() is not None or time.monotonic() > until:
                self.stop(signal.SIGKILL)
                raise RuntimeError(f"handoffd does not start:\n{self.log}")
            time.sleep(0.02)
        return self

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the server by a signal, and wait until it has ended. It may be repeated."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(_STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP)
        self._process = None

    def kill(self) -> None:
        """End the server as a crash would: by SIGKILL."""
        self.stop(signal.SIGKILL)

    def signal(self, which: signal.Signals) -> None:
        """Send the server a signal, such as SIGSTOP, SIGCONT and SIGHUP.

        After SIGSTOP it returns when the server has stopped.
        """
        if self._process is not None:
            self._process.send_signal(which)
            if which == getattr(signal, "SIGSTOP", None):
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def connect(self, **options: Any) -> client.Connecting:
        """Connect to the server: ``async with world.connect() as engine``."""
        return client.connect(self.url, **options)

    def sync(self, **options: Any) -> sync.Client:
        """Connect to the server without asyncio: ``with world.sync() as engine``."""
        return sync.connect(self.url, **options)

    def record(self, file: str | Path, *, town_id: str | None = None) -> Path:
        """Write a fixture of each handoff that the world, or the town, has judged.

        ``replay`` judges them again in an empty world.
        """
        if self._handoffctl is None:
            raise RuntimeError("World needs the program handoffctl to record")
        town = ["--town", town_id] if town_id is not None else []
        _run(self._handoffctl, "record", "--server", self.url, "--out", str(file), *town)
        return Path(file)


def replay(handoffctl: str, *paths: str | Path, strict: bool = True) -> None:
    """Judge the fixtures of files again, each file in an empty world of its own.

    It raises AssertionError with the differences if one ends otherwise than it expects. ``strict``
    refuses fixtures that expect nothing.
    """
    __tracebackhide__ = True
    flags = ["--fresh", *(["--strict"] if strict else [])]
    _run(handoffctl, "replay", *flags, *(str(path) for path in paths))


def fixture_files(directory: str | Path) -> list[Any]:
    """Return the fixture files of a directory as parameters of a test, each with its name."""
    root = Path(directory)
    suffixes = (".json", ".jsonl", ".ndjson")
    files = sorted(path for path in root.rglob("*") if path.suffix in suffixes)
    return [pytest.param(path, id=str(path.relative_to(root))) for path in files]


def _run(program: str, *args: str) -> None:
    __tracebackhide__ = True
    ran = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise AssertionError(f"handoffctl {args[0]} failed:\n{ran.stdout}{ran.stderr}")


def _free_address() -> str:
    """Return an address that a server can have again after each restart.

    Its port is below those that the kernel gives to every process that connects.
    """
    for _ in range(100):
        port = random.randrange(12_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return f"127.0.0.1:{port}"
    raise RuntimeError("no port is free")


def _program(config: pytest.Config, name: str) -> str:
    given = config.getoption(f"--{name}") or os.environ.get(name.upper())
    found = shutil.which(str(given or name))
    if found is None:
        pytest.fail(f"no program {given or name}: give --{name} PATH, or add it to the PATH")
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("worldengine")
    for name in ("handoffd", "handoffctl"):
        group.addoption(f"--{name}", help=f"the program {name}; from the PATH by default")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    about = "handoffd(*flags, world_file=None): how the fixture world starts its server"
    config.addinivalue_line("markers", about)


@pytest.fixture(scope="session")
def handoffd(request: pytest.FixtureRequest) -> str:
    """The path of the program handoffd."""
    return _program(request.config, "handoffd")


@pytest.fixture(scope="session")
def handoffctl(request: pytest.FixtureRequest) -> str:
    """The path of the program handoffctl."""
    return _program(request.config, "handoffctl")


@pytest.fixture
def world(request: pytest.FixtureRequest, handoffd: str, tmp_path: Path) -> Iterator[World]:
    """A world of its own for a test, with its server. The marker ``handoffd`` has its flags."""
    option = request.config.getoption("--handoffctl") or os.environ.get("HANDOFFCTL")
    marker = request.node.get_closest_marker("handoffd")
    args, kwargs = (marker.args, marker.kwargs) if marker else ((), {})
    with World(handoffd, tmp_path, shutil.which(option or "handoffctl")) as own:
        yield own.start(*args, **kwargs)
