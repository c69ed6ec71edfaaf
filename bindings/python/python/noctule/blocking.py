"""The same as ``noctule`` without an event loop: calls block their thread.

Every call that may have to wait takes ``timeout`` in seconds (``None``, the default: as long as it takes) and raises ``TimeoutError`` after it; then
nothing is lost, and the call may be repeated. Ctrl-C ends a call with ``KeyboardInterrupt``. Several threads may use the same objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from . import _core, _options
from ._core import Message
from ._endpoint import EndpointBase
from ._errors import SessionClosed
from ._messages import ReceivingEnd, SendingEnd
from ._options import Mode, Seconds, TrafficClass, optional_seconds
from ._session import SessionBase
from ._stream import Halves
from ._types import Outcome
from ._wait import blocked

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Endpoint", "MessageReceiver", "MessageSender", "Session", "Stream", "connect", "listen"]


class Stream(Halves):
    """A byte stream: see ``noctule.Stream``."""

    def read(self, n: int = 1 << 20, *, timeout: float | None = None) -> bytes:
        """The next bytes, at most ``n``, as soon as there are some; ``b""`` at the end of the stream."""
        return blocked(timeout, self._receiver.poll_read, n)

    def readinto(self, buffer: Buffer, *, timeout: float | None = None) -> int:
        """Like ``read``, into a writable buffer without a further copy: how many bytes; 0 at the end of the stream."""
        return blocked(timeout, self._receiver.poll_readinto, buffer)

    def readexactly(self, n: int, *, timeout: float | None = None) -> bytes:
        """Exactly ``n`` bytes. ``IncompleteReadError`` if the stream ends first."""
        return blocked(timeout, self._receiver.poll_readexactly, n)

    def read_to_end(self, limit: int, *, timeout: float | None = None) -> bytes:
        """Everything up to the end of the stream. More than ``limit`` bytes are a ``LimitError``, and can still be read."""
        return blocked(timeout, self._receiver.poll_read_to_end, limit)

    def __iter__(self) -> Iterator[bytes]:
        """Blocks of bytes as they come."""
        while block := self.read():
            yield block

    def write(self, data: Buffer, *, timeout: float | None = None) -> None:
        """Writes all of ``data`` and waits until the node has taken it. After a ``TimeoutError`` it is still taken: do not write it again."""
        self._sender.write(data)
        blocked(timeout, self._sender.poll_drain)

    def finish(self, *, timeout: float | None = None) -> None:
        """Ends what this end sends, and returns when the far end has everything."""
        blocked(timeout, self._sender.poll_finish)


class MessageSender(SendingEnd):
    """Sends messages: see ``noctule.MessageSender``."""

    def send(
        self,
        data: Buffer,
        *,
        lifetime: Seconds | None = None,
        priority: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Queues a message, waiting for room: its number within the flow. After a ``TimeoutError`` nothing was queued."""
        level = self._priority if priority is None else priority
        return blocked(timeout, self._core.poll_send, data, optional_seconds(lifetime), level)

    def finish(self, *, timeout: float | None = None) -> None:
        """Ends the flow, and returns when the far end has everything that has not expired."""
        blocked(timeout, self._core.poll_finish)


class MessageReceiver(ReceivingEnd):
    """Receives messages: ``for message in flow``. See ``noctule.MessageReceiver``."""

    def recv(self, *, timeout: float | None = None) -> Message | None:
        """The next message; ``None`` after the last one."""
        answer = blocked(timeout, self._core.poll_recv)
        return answer if isinstance(answer, Message) else None

    def __iter__(self) -> Iterator[Message]:
        """The messages."""
        while (message := self.recv()) is not None:
            yield message


class Session(SessionBase):
    """A session with another node: see ``noctule.Session``."""

    def open_stream(self, *, bidirectional: bool = True, traffic_class: TrafficClass = "bulk", tag: int = 0) -> Stream:
        """Opens a byte stream, in both directions or towards the far end only, which hears of it with the first bytes."""
        return Stream(*self._core.open_stream(bidirectional, traffic_class, tag))

    def accept_stream(self, *, timeout: float | None = None) -> Stream:
        """The next stream that the far end opened; ``SessionClosed`` when none comes any more."""
        return Stream(*blocked(timeout, self._core.poll_accept_stream))

    def streams(self) -> Iterator[Stream]:
        """The streams that the far end opens, until the session ends well; ``SessionClosed`` if it does not."""
        while True:
            try:
                stream = self.accept_stream()
            except SessionClosed as closed:
                if closed.reason.is_clean:
                    return
                raise
            yield stream

    def open_messages(
        self,
        *,
        mode: Mode = "brtp",
        ordered: bool = True,
        lifetime: Seconds | None = None,
        priority: int = 0,
        traffic_class: TrafficClass = "bulk",
        tag: int = 0,
    ) -> MessageSender:
        """Opens a flow of messages towards the far end: see ``noctule.Session.open_messages``."""
        return MessageSender(self._core.open_messages(mode, ordered, optional_seconds(lifetime), traffic_class, tag), priority)

    def accept_messages(self, *, timeout: float | None = None) -> MessageReceiver:
        """The next flow of messages that the far end opened; ``SessionClosed`` when none comes any more."""
        return MessageReceiver(blocked(timeout, self._core.poll_accept_messages))

    def recv_datagram(self, *, timeout: float | None = None) -> bytes:
        """The next datagram of the far end."""
        return blocked(timeout, self._core.poll_recv_datagram)

    def wait_target_rate(self, *, timeout: float | None = None) -> float:
        """The next rate that the program should produce, in bits per second: see ``noctule.Session.wait_target_rate``."""
        return blocked(timeout, self._core.poll_target_rate)

    def close(self, code: int = 0, reason: str = "", *, linger: Seconds | None = None, timeout: float | None = None) -> Outcome:
        """Closes gracefully and tells how that went: see ``noctule.Session.close``."""
        self._core.close(code, reason, optional_seconds(linger))
        outcome = self.wait_closed(timeout=timeout)
        if self._endpoint is not None:
            blocked(timeout, self._endpoint.poll_idle)
        return outcome

    def wait_closed(self, *, timeout: float | None = None) -> Outcome:
        """Waits until the session is over, whichever end closes it."""
        return blocked(timeout, self._core.poll_closed)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.abort(1)
        self.close()


class Endpoint(EndpointBase):
    """One node: see ``noctule.Endpoint``. ``for session in endpoint`` takes the sessions that others open."""

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

    def connect(self, address: str, *, key: _core.PublicKey | str | None, timeout: float | None = None) -> Session:
        """Opens a session with ``address`` (``HOST:PORT``), which must prove that it has ``key``. ``None`` takes any key: look at ``peer_key``."""
        return Session(_attempt(self._core, address, key, timeout))

    def accept(self, *, timeout: float | None = None) -> Session | None:
        """The next session that another node opened; ``None`` once the endpoint is closed."""
        answer = blocked(timeout, self._core.poll_accept)
        return Session(answer) if isinstance(answer, _core.Session) else None

    def __iter__(self) -> Iterator[Session]:
        """The sessions that others open, until the endpoint is closed."""
        while (session := self.accept()) is not None:
            yield session

    def close(self, code: int = 0, reason: str = "", *, timeout: float | None = None) -> None:
        """Ends all sessions at once and takes no more; returns when the farewells are sent. For a graceful end close the sessions first."""
        self._core.close(code, reason)
        self.wait_idle(timeout=timeout)

    def wait_idle(self, *, timeout: float | None = None) -> None:
        """Waits until no session is left."""
        blocked(timeout, self._core.poll_idle)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _attempt(
    endpoint: _core.Endpoint, address: str, key: _core.PublicKey | str | None, timeout: float | None
) -> _core.Session:
    attempt = endpoint.connect(address, None if key is None else _options.public_key(key))
    try:
        return blocked(timeout, attempt.poll)
    finally:
        attempt.cancel()


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
    timeout: float | None = None,
) -> Session:
    """Opens a session with ``address``, by a socket of its own: see ``noctule.connect``."""
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
    return Session(_attempt(endpoint, address, key, timeout), endpoint)


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
    """Opens an endpoint on one or several addresses of this host: see ``noctule.listen``."""
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
