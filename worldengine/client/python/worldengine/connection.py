"""The connection to NATS: it reconnects until it is closed, and has one inbox for all answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import nats.errors
from nats.aio.client import Client as NATS
from nats.aio.msg import Msg

from .errors import UnavailableError

__all__ = ["Connection", "environment"]

log = logging.getLogger("worldengine")

DEFAULT_SERVER = "nats://127.0.0.1:4222"
# NATS's own interval, 2 minutes, would notice up to 6 minutes late that a node has vanished.
_PING_INTERVAL = 5
# So often in a row a server may refuse the credentials before the connection is closed for good.
_REFUSALS = 2


Callback = Callable[..., Awaitable[None]]


class Waiter(Protocol):
    """What waits for answers, and for news of the connection."""

    subject: str

    def answered(self, msg: Msg) -> None:
        """Receive an answer."""

    def reconnected(self) -> None:
        """Learn that the connection is back."""

    def failed(self, error: UnavailableError) -> None:
        """End: no answer will come."""


class _NATS(NATS):
    """NATS's client, with what it lacks of NATS's clients in other languages."""

    async def _connect_to_server(self, s: Any) -> None:
        if self._transport:  # of an attempt that the server refused
            self._transport.close()  # type: ignore[no-untyped-call]
        await super()._connect_to_server(s)

    async def _send_ping(self, future: Any = None) -> None:
        # flush says that the server has what was sent before, so that has to leave before its PING.
        if self._pending_data_size > 0 and self._transport:
            self._transport.writelines(self._pending)
            self._pending, self._pending_data_size = [], 0
        await super()._send_ping(future)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        await super()._process_info(info, initial_connection)
        # The account's own bound comes after the first INFO. What exceeds it costs the connection.
        self._max_payload = info.get("max_payload", self._max_payload)

    async def _process_err(self, err_msg: str) -> None:
        # Where the rights of a user change, its connections end; its credentials may still hold.
        if _is_refusal(err_msg) and self.is_connected:
            await self._process_op_err(nats.errors.Error(f"nats: {err_msg}"))
        else:
            await super()._process_err(err_msg)


class Connection:
    """A connection of one event loop in one process, with the inbox of its requests."""

    def __init__(self, nc: NATS) -> None:
        self.nc = nc
        self.loop = asyncio.get_running_loop()
        self.failure: UnavailableError | None = None
        """Why the server closed the connection; None if the caller did, or it is open."""
        self.served = False
        """Whether a server has answered on this connection before."""
        self.closed = asyncio.Event()
        self._pid = os.getpid()
        self._inbox = ""
        self._waiters: dict[str, Waiter] = {}
        self.came_back: list[Callable[[], object]] = []
        """Called whenever the connection has come back."""
        self._asked = 0
        self._refusals = 0
        self._denied: UnavailableError | None = None  # to read the inbox
        self._close: asyncio.Task[None] | None = None
        self._errors: list[Exception] = []  # of the first connection
        self._awaited: list[str] = []  # the servers of a first connection that is waited for
        self._warned: set[str] = set()

    @classmethod
    async def open(
        cls, servers: str | list[str], *, wait: bool = False, **options: Any
    ) -> Connection:
        """Connect; with ``wait`` as long as it takes. See ``worldengine.connect``."""
        self = cls(_NATS())
        urls = [url.strip() for url in servers.split(",")] if isinstance(servers, str) else servers
        named, urls = _credentials(urls)
        options = {**named, **options}
        settings: dict[str, Any] = {
            "name": "worldengine-client",
            "ping_interval": _PING_INTERVAL,
            "pending_size": 8 << 20,
            **_inbox_prefix(options.get("user"), options.get("password")),
            **options,
        }
        asked: dict[str, Any] = {
            name: self._both(own, settings.pop(name, None)) for name, own in self._callbacks()
        }
        later = {"reconnect_time_wait": settings.pop("reconnect_time_wait", 1)}
        # A first connection that fails is reported at once: the second attempt is NATS's least.
        first = later if wait else {"max_reconnect_attempts": 1, "reconnect_time_wait": 0.02}
        settings = {"max_reconnect_attempts": -1, **settings, **first}
        self._awaited = urls if wait else []
        try:
            await self.nc.connect(urls, **settings, **asked)
            self.nc.options.update(later, max_reconnect_attempts=-1)
            self._inbox = self.nc.new_inbox()
            await self.nc.subscribe(self._inbox + ".*", cb=self._answered)
            # Only now the server has said whether the inbox may be read.
            await self.nc.flush()
        except BaseException as error:
            await self._abandon()
            if isinstance(error, (OSError, nats.errors.Error, asyncio.TimeoutError)):
                raise self._not_connected(urls, error) from error
            if isinstance(error, ImportError):
                raise _missing(error) from error
            raise
        self._errors.clear()
        self._refusals = 0
        return self

    def check(self) -> None:
        """Raise if the connection cannot be used here."""
        if os.getpid() != self._pid:
            raise UnavailableError(
                "FORKED",
                "this process was forked after the client connected, and a connection has one "
                "owner: connect again in the child",
            )
        if self.closed.is_set() or self.nc.is_closed:
            raise self.closed_error()

    def closed_error(self) -> UnavailableError:
        """Return the error of a closed connection."""
        return self.failure or UnavailableError("CONNECTION", "the connection is closed")

    def inbox(self, waiter: Waiter) -> str:
        """Return a reply subject whose messages ``waiter`` gets until ``leave``."""
        if self._denied:
            raise self._denied
        self._asked += 1
        token = str(self._asked)
        self._waiters[token] = waiter
        return f"{self._inbox}.{token}"

    def leave(self, inbox: str) -> None:
        """Forget a reply subject."""
        self._waiters.pop(inbox[len(self._inbox) + 1 :], None)

    async def close(self) -> None:
        """Close after the sent messages have left, if the server is there. It may be repeated.

        In a forked child it does nothing: the connection is the parent's.
        """
        if os.getpid() != self._pid:
            return
        if self._close is None:
            self._close = self.loop.create_task(self._closing())
        await asyncio.shield(self._close)

    async def _closing(self) -> None:
        if self.nc.is_connected:
            with contextlib.suppress(Exception):  # a lost connection has nothing to send
                await self.nc.flush(timeout=2)
        await self._abandon()
        self._ended(UnavailableError("CONNECTION", "the connection is closed"))

    async def _abandon(self) -> None:
        with contextlib.suppress(Exception):  # of a connection that is broken anyway
            closing = self.loop.create_task(self.nc.close())
            await asyncio.wait({closing}, timeout=5)
            closing.cancel()

    def _ended(self, error: UnavailableError) -> None:
        self.closed.set()
        for waiter in list(self._waiters.values()):
            waiter.failed(error)

    # What NATS reports.

    def _callbacks(self) -> list[tuple[str, Callback]]:
        return [
            ("error_cb", self._erred),
            ("disconnected_cb", self._disconnected),
            ("reconnected_cb", self._reconnected),
            ("closed_cb", self._closed),
        ]

    def _both(self, own: Callback, given: Callback | None) -> Callback:
        """Return the client's own callback, followed by the caller's."""
        if given is None:
            return own

        async def both(*args: Any) -> None:
            await own(*args)
            await given(*args)

        return both

    async def _answered(self, msg: Msg) -> None:
        waiter = self._waiters.get(msg.subject[len(self._inbox) + 1 :])
        if waiter is not None:
            waiter.answered(msg)

    async def _disconnected(self) -> None:
        if not self.nc.is_closed:
            log.info("the connection to NATS is lost; it reconnects")

    async def _reconnected(self) -> None:
        self._refusals = 0
        log.info("the connection to NATS is back")
        for waiter in list(self._waiters.values()):
            waiter.reconnected()
        for came_back in list(self.came_back):
            came_back()

    async def _closed(self) -> None:
        if self._close is None:
            why = self.nc.last_error
            self._failed(why or Exception("by NATS"))

    def _failed(self, why: Exception) -> None:
        self.failure = UnavailableError("CONNECTION", f"the connection was closed: {_text(why)}")
        self.failure.__cause__ = why
        self._ended(self.failure)

    async def _erred(self, error: Exception) -> None:
        text = _text(error).lower()
        log.debug("NATS: %s", text)
        if self._awaited and not self._inbox:
            self._not_yet(error)
        elif not self._inbox:
            self._errors = [*self._errors[-9:], error]
        elif "permissions violation" in text:
            self._denied_by(text, error)
        elif self.nc.is_reconnecting or self.nc.is_connecting:
            self._refusals = self._refusals + 1 if _is_refusal(text) else 0
            if self._refusals >= _REFUSALS and self.failure is None:
                self._failed(error)
                self._close = self.loop.create_task(self._abandon())

    def _not_yet(self, error: Exception) -> None:
        """Report why the first connection has to wait, and raise if it is refused for good."""
        failed = self._not_connected(self._awaited, error)
        if str(failed) not in self._warned:
            self._warned.add(str(failed))
            log.warning("%s; it is tried again", failed)
        self._refusals = self._refusals + 1 if _is_refusal(_text(error).lower()) else 0
        if self._refusals >= _REFUSALS:
            raise failed from error

    def _denied_by(self, text: str, error: Exception) -> None:
        """End the requests that NATS denies to the user. It writes subjects in lower case here."""
        denied = UnavailableError(
            "PERMISSION_DENIED",
            f"this user may not ask so, or not read the answer in its inbox: {text}; the inbox "
            "prefix of a user is _INBOX_<user>",
        )
        denied.__cause__ = error
        inbox = f'subscription to "{self._inbox.lower()}.' in text
        if inbox:
            self._denied = denied
        for waiter in list(self._waiters.values()):
            if inbox or f'publish to "{waiter.subject.lower()}"' in text:
                waiter.failed(denied)

    def _not_connected(self, urls: list[str], error: BaseException) -> UnavailableError:
        """Return the error of a failed first connection, without the secrets of a URL."""
        refusals = [e for e in self._errors if _is_refusal(_text(e).lower())]
        why = [*refusals, *self._errors, error][0] if self._errors else error
        shown = ", ".join(url.removeprefix("nats://") for url in urls)
        hint = ""
        if refusals or _is_refusal(_text(why).lower()):
            hint = ": it refuses the user, its password or its key"
        elif isinstance(why, (OSError, asyncio.TimeoutError)) and not isinstance(why, ssl.SSLError):
            hint = "; start handoffd, or give the address that it listens on"
        return UnavailableError("CONNECTION", f"cannot connect to {shown}: {_text(why)}{hint}")


def environment(env: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the options in the environment variables of the NATS command line.

    They are NATS_URL, NATS_USER, NATS_PASSWORD, NATS_TOKEN, NATS_CREDS, NATS_NKEY, NATS_CA,
    NATS_CERT, NATS_KEY and NATS_INBOX_PREFIX. ``connect()`` without servers uses them.
    """
    user, password, token = (env.get(f"NATS_{n}") for n in ("USER", "PASSWORD", "TOKEN"))
    options: dict[str, Any] = {}
    if env.get("NATS_URL"):
        options["servers"] = [url.strip() for url in env["NATS_URL"].split(",")]
    if token or (user and not password):
        options["token"] = token or user
    elif user:
        options.update(user=user, password=password)
    if env.get("NATS_INBOX_PREFIX"):
        options["inbox_prefix"] = env["NATS_INBOX_PREFIX"]
    if env.get("NATS_CREDS"):
        options["user_credentials"] = env["NATS_CREDS"]
    if env.get("NATS_NKEY"):
        options["nkeys_seed_str"] = Path(env["NATS_NKEY"]).read_text().strip()
    if env.get("NATS_CA") or env.get("NATS_CERT"):
        context = ssl.create_default_context(cafile=env.get("NATS_CA") or None)
        if env.get("NATS_CERT"):
            context.load_cert_chain(env["NATS_CERT"], env.get("NATS_KEY") or None)
        options["tls"] = context
    return options


def _credentials(urls: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the credentials in the first URL, decoded, and the URLs without any."""
    first = urlsplit(urls[0] if "://" in urls[0] else f"nats://{urls[0]}")
    named: dict[str, str] = {}
    if first.username and first.password:
        named = {"user": unquote(first.username), "password": unquote(first.password)}
    elif first.username:
        named = {"token": unquote(first.username)}
    return named, [re.sub(r"^([a-z]+://)?[^/]*@", r"\1", url) for url in urls]


def _inbox_prefix(user: Any, password: Any) -> dict[str, str]:
    """Return the inbox prefix of a user with a password, as access control requires it."""
    if isinstance(user, str) and password:
        return {"inbox_prefix": f"_INBOX_{user}"}
    return {}


def _is_refusal(text: str) -> bool:
    return "authorization" in text or "authentication" in text


def _text(error: BaseException) -> str:
    return str(error).removeprefix("nats: ").strip("'") or type(error).__name__


def _missing(error: ImportError) -> UnavailableError:
    return UnavailableError(
        "CONNECTION",
        f"a package is missing ({error}): pip install 'worldengine[nkeys]' for keys and "
        "credentials files, 'worldengine[websocket]' for ws://",
    )
