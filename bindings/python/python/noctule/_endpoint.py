"""Endpoints: they open sessions, and take those that others open."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from types import TracebackType

from . import _core, _options
from ._options import Seconds
from ._session import Session
from ._types import EndpointStats
from ._wait import until


class EndpointBase:
    """What the asyncio endpoint and the blocking one have in common: everything that does not wait."""

    def __init__(self, core: _core.Endpoint) -> None:
        self._core = core

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where its sockets are bound, with the ports that the system chose."""
        return self._core.local_addresses()

    @property
    def port(self) -> int:
        """The port of its first socket."""
        return self._core.local_addresses()[0][1]

    def stats(self) -> EndpointStats:
        """Statistics of its sockets and its memory."""
        return EndpointStats(**self._core.stats())


class Endpoint(EndpointBase):
    """One node: an identity and its sockets. Made by ``listen`` and ``Endpoint.client``.

    ``async for session in endpoint`` takes the sessions that others open, until it is closed. As an async context manager it is closed at the
    end of the block. An endpoint that is dropped takes no more sessions; those that it has go on.
    """

    @classmethod
    def client(
        cls,
        *,
        identity: _core.Identity | None = None,
        shared_key: str | None = None,
        congestion: str = "model",
        connect_timeout: Seconds = 10,
        idle_timeout: Seconds = 30,
        linger: Seconds = 10,
        max_message: int = 16 << 20,
    ) -> Endpoint:
        """An endpoint on a port that the system chooses, for many sessions over one socket. Other nodes cannot open sessions to it."""
        return cls(
            _options.endpoint(
                [],
                identity,
                authorised=None,
                shared_key=shared_key,
                congestion=congestion,
                connect_timeout=connect_timeout,
                idle_timeout=idle_timeout,
                linger=linger,
                max_message=max_message,
                accept=False,
            )
        )

    async def connect(self, address: str, *, key: _core.PublicKey | str | None) -> Session:
        """Opens a session with ``address`` (``HOST:PORT``), which must prove that it has ``key``. ``None`` takes any key: look at ``peer_key``."""
        return Session(await _attempt(self._core, address, key))

    async def accept(self) -> Session | None:
        """The next session that another node opened; ``None`` once the endpoint is closed. Cancelling the task loses no session."""
        answer = await until(self._core.poll_accept)
        return Session(answer) if isinstance(answer, _core.Session) else None

    def __aiter__(self) -> Endpoint:
        return self

    async def __anext__(self) -> Session:
        """The next session that another node opened."""
        session = await self.accept()
        if session is None:
            raise StopAsyncIteration
        return session

    async def close(self, code: int = 0, reason: str = "") -> None:
        """Ends all sessions at once and takes no more; returns when the farewells are sent. For a graceful end close the sessions first."""
        self._core.close(code, reason)
        await self.wait_idle()

    async def wait_idle(self) -> None:
        """Waits until no session is left."""
        await until(self._core.poll_idle)

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


async def _attempt(endpoint: _core.Endpoint, address: str, key: _core.PublicKey | str | None) -> _core.Session:
    attempt = endpoint.connect(address, None if key is None else _options.public_key(key))
    try:
        return await until(attempt.poll)
    finally:
        attempt.cancel()


class Connecting:
    """A session that is being opened: ``async with noctule.connect(...) as session``, or ``session = await noctule.connect(...)``."""

    def __init__(self, endpoint: _core.Endpoint, address: str, key: _core.PublicKey | str | None) -> None:
        self._endpoint = endpoint
        self._address = address
        self._key = key
        self._session: Session | None = None

    async def _open(self) -> Session:
        return Session(await _attempt(self._endpoint, self._address, self._key), self._endpoint)

    def __await__(self) -> Generator[object, None, Session]:
        return self._open().__await__()

    async def __aenter__(self) -> Session:
        self._session = await self._open()
        return self._session

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.__aexit__(kind, error, trace)


def connect(
    address: str,
    *,
    key: _core.PublicKey | str | None,
    identity: _core.Identity | None = None,
    shared_key: str | None = None,
    congestion: str = "model",
    connect_timeout: Seconds = 10,
    idle_timeout: Seconds = 30,
    linger: Seconds = 10,
    max_message: int = 16 << 20,
) -> Connecting:
    """Opens a session with ``address`` (``HOST:PORT``; all addresses of a name are tried), by a socket of its own.

    - ``key``: the far end has to prove that it owns this key, or nothing is sent. ``None`` takes whatever key answers: then check ``peer_key``.
    - ``identity``: the key pair of this end; a fresh one, known to no peer, if none is given.
    - ``shared_key``: a further secret of both ends, as ``noctule keygen --shared`` makes it.
    - ``congestion``: one of ``congestion_controls()``.
    - ``connect_timeout``: when an attempt is given up; ``idle_timeout``: silence after which the session ends.
    - ``linger``: how long a session goes on delivering after it was closed.
    - ``max_message``: the largest message that this end takes, in bytes.

    Raises ``ConnectError`` when awaited, ``ValueError`` for arguments that mean nothing.
    """
    if not isinstance(address, str):
        raise TypeError(f"an address is text, HOST:PORT, not {type(address).__name__}")
    if key is not None:
        key = _options.public_key(key)
    endpoint = _options.endpoint(
        [],
        identity,
        authorised=None,
        shared_key=shared_key,
        congestion=congestion,
        connect_timeout=connect_timeout,
        idle_timeout=idle_timeout,
        linger=linger,
        max_message=max_message,
        accept=False,
    )
    return Connecting(endpoint, address, key)


def listen(
    addresses: str | Sequence[str],
    *,
    authorised: Iterable[_core.PublicKey | str] | None,
    identity: _core.Identity,
    shared_key: str | None = None,
    congestion: str = "model",
    connect_timeout: Seconds = 10,
    idle_timeout: Seconds = 30,
    linger: Seconds = 10,
    max_message: int = 16 << 20,
) -> Endpoint:
    """Opens an endpoint on one or several addresses of this host (``ADDRESS:PORT``; ``[::]:4242`` is every address, port 0 any port).

    - ``authorised``: the keys that may open sessions; ``None`` lets every key in.
    - ``identity``: the key pair of this end; its public key is what others pin.
    - The rest is as for ``connect``.

    Raises ``BindError``, and ``ValueError`` for arguments that mean nothing.
    """
    return Endpoint(
        _options.listening(
            addresses,
            identity,
            authorised=authorised,
            shared_key=shared_key,
            congestion=congestion,
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            linger=linger,
            max_message=max_message,
        )
    )
