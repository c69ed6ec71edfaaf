"""Sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING

from . import _core
from ._errors import SessionClosed
from ._messages import MessageReceiver, MessageSender
from ._options import Mode, Seconds, TrafficClass, optional_seconds
from ._stream import Stream
from ._types import CloseReason, Outcome, SessionStats
from ._wait import until

if TYPE_CHECKING:
    from typing_extensions import Buffer


class SessionBase:
    """What the asyncio session and the blocking one have in common: everything that does not wait."""

    def __init__(self, core: _core.Session, endpoint: _core.Endpoint | None = None) -> None:
        self._core = core
        # One that was opened for this session alone, and ends with it.
        self._endpoint = endpoint

    @property
    def peer_key(self) -> _core.PublicKey:
        """The far end's public key, which it has proven to own."""
        return self._core.peer_key()

    @property
    def remote_address(self) -> tuple[str, int] | None:
        """The far end's address and port, as long as they are known."""
        return self._core.remote_address()

    @property
    def close_reason(self) -> CloseReason | None:
        """Why the session ended; ``None`` while it lasts."""
        return self._core.close_reason()

    def send_datagram(self, data: Buffer) -> bool:
        """Sends a datagram, which arrives within half a second, in no order, or not at all. ``False``: no room, it was dropped."""
        return self._core.send_datagram(data)

    def set_congestion(self, name: str) -> None:
        """Changes the congestion control of what this end sends: one of ``noctule.congestion_controls()``."""
        self._core.set_congestion(name)

    def stats(self) -> SessionStats:
        """Counters and estimates; the last known ones after the end."""
        return SessionStats._of(self._core.stats())

    def abort(self, code: int = 0, reason: str = "") -> None:
        """Ends the session at once: what has not arrived is lost."""
        self._core.abort(code, reason)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} with {self.peer_key}>"


class Session(SessionBase):
    """A session with another node: any number of streams and flows of messages, in both directions.

    As an async context manager it is closed gracefully at the end of the block, and aborted with code 1 if the block raises.
    A session that is forgotten, with all its streams and flows, is closed gracefully in the background.

    A task that is cancelled while it waits for one of the methods loses nothing.
    """

    def open_stream(self, *, bidirectional: bool = True, traffic_class: TrafficClass = "bulk", tag: int = 0) -> Stream:
        """Opens a byte stream, in both directions or towards the far end only, which hears of it with the first bytes."""
        return Stream(*self._core.open_stream(bidirectional, traffic_class, tag))

    async def accept_stream(self) -> Stream:
        """The next stream that the far end opened; ``SessionClosed`` when none comes any more."""
        return Stream(*await until(self._core.poll_accept_stream))

    async def streams(self) -> AsyncIterator[Stream]:
        """The streams that the far end opens, until the session ends well; ``SessionClosed`` if it does not."""
        while True:
            try:
                stream = await self.accept_stream()
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
        """Opens a flow of messages towards the far end.

        ``mode``: ``brtp`` delivers every message, ``btp`` within ``lifetime`` or not at all, ``transparent`` sends bare datagrams.
        ``ordered`` hands them over in the order of sending, otherwise each as soon as it is complete.
        ``priority`` (0 to 255) is that of each message: more goes first among those that wait.
        """
        return MessageSender(self._core.open_messages(mode, ordered, optional_seconds(lifetime), traffic_class, tag), priority)

    async def accept_messages(self) -> MessageReceiver:
        """The next flow of messages that the far end opened; ``SessionClosed`` when none comes any more."""
        return MessageReceiver(await until(self._core.poll_accept_messages))

    async def recv_datagram(self) -> bytes:
        """The next datagram of the far end."""
        return await until(self._core.poll_recv_datagram)

    async def wait_target_rate(self) -> float:
        """The next rate that the program should produce, in bits per second; the first is there at once. For media, with congestion control ``gcc``.

        Headers and what repairs the mean loss are taken off. Sessions with the same neighbour share the rate. A rate is told when it differs by a
        twentieth; one that is out of date is not told. Other congestion controls tell none. ``SessionClosed`` when the session is over.
        """
        return await until(self._core.poll_target_rate)

    async def target_rates(self) -> AsyncIterator[float]:
        """The rates of ``wait_target_rate``, until the session ends well; ``SessionClosed`` if it does not."""
        while True:
            try:
                rate = await self.wait_target_rate()
            except SessionClosed as closed:
                if closed.reason.is_clean:
                    return
                raise
            yield rate

    async def close(self, code: int = 0, reason: str = "", *, linger: Seconds | None = None) -> Outcome:
        """Closes gracefully and tells how that went: what was finished is delivered first, for at most ``linger`` (the endpoint's, if none is given).

        A session that is over stays as it ended. The close goes on if the task is cancelled.
        """
        self._core.close(code, reason, optional_seconds(linger))
        outcome = await self.wait_closed()
        if self._endpoint is not None:
            # After this the farewell has been sent, and the program may end.
            await until(self._endpoint.poll_idle)
        return outcome

    async def wait_closed(self) -> Outcome:
        """Waits until the session is over, whichever end closes it."""
        return await until(self._core.poll_closed)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.abort(1)
        await self.close()
