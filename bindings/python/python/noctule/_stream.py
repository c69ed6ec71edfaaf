"""Byte streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _core
from ._errors import UsageError
from ._types import FlowStats
from ._wait import until

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Halves:
    """What the asyncio stream and the blocking one have in common: everything that does not wait."""

    def __init__(self, sender: _core.Sender | None, receiver: _core.Receiver | None) -> None:
        self._out = sender
        self._in = receiver

    @property
    def _sender(self) -> _core.Sender:
        if self._out is None:
            raise UsageError("the far end opened this stream in one direction: it can be read only")
        return self._out

    @property
    def _receiver(self) -> _core.Receiver:
        if self._in is None:
            raise UsageError("this stream was opened in one direction: it can be written only")
        return self._in

    @property
    def can_read(self) -> bool:
        """The far end sends on this stream."""
        return self._in is not None

    @property
    def can_write(self) -> bool:
        """This end sends on this stream."""
        return self._out is not None

    @property
    def tag(self) -> int:
        """The number that the opener gave to a stream that the far end opened."""
        return self._receiver.tag

    def reset(self, code: int = 0) -> None:
        """Gives up sending at once: what has not arrived is lost, and the far end reads ``StreamReset(code)``."""
        self._sender.reset(code)

    def stop(self, code: int = 0) -> None:
        """Tells the far end that no more is wanted: its writes fail with ``StreamStopped(code)``."""
        self._receiver.stop(code)

    @property
    def pending(self) -> int:
        """Bytes written that the node has not taken yet."""
        return self._sender.pending()

    def sent_stats(self) -> FlowStats:
        """Counts of what this end sends. They end with the stream; ``Session.stats()`` keeps the sums."""
        return FlowStats(**self._sender.stats())

    def received_stats(self) -> FlowStats:
        """Counts of what this end receives. They end with the stream; ``Session.stats()`` keeps the sums."""
        return FlowStats(**self._receiver.stats())


class Stream(Halves):
    """A byte stream: written with ``write``, ``drain`` and ``finish``, read with ``read`` and its kin.

    A stream that is dropped ends as if it was finished: what was written is delivered, and the far end is told that nothing more is read.

    Cancelling a task that waits for one of the methods loses nothing: what was read so far is there for the next call.
    """

    async def read(self, n: int = 1 << 20) -> bytes:
        """The next bytes, at most ``n``, as soon as there are some; ``b""`` at the end of the stream."""
        return await until(self._receiver.poll_read, n)

    async def readinto(self, buffer: Buffer) -> int:
        """Like ``read``, into a writable buffer without a further copy: how many bytes; 0 at the end of the stream."""
        return await until(self._receiver.poll_readinto, buffer)

    async def readexactly(self, n: int) -> bytes:
        """Exactly ``n`` bytes. ``IncompleteReadError`` if the stream ends first."""
        return await until(self._receiver.poll_readexactly, n)

    async def read_to_end(self, limit: int) -> bytes:
        """Everything up to the end of the stream. More than ``limit`` bytes are a ``LimitError``, and can still be read."""
        return await until(self._receiver.poll_read_to_end, limit)

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> bytes:
        """Blocks of bytes as they come."""
        block = await self.read()
        if not block:
            raise StopAsyncIteration
        return block

    def write(self, data: Buffer) -> None:
        """Takes all of ``data``. ``bytes`` are not copied until they are in packets; other buffers may change and are copied at once.

        Never waits: what the node has no room for is kept in memory. So await ``drain()`` before the next write.
        """
        self._sender.write(data)

    async def drain(self) -> None:
        """Waits until the node has taken everything that was written."""
        await until(self._sender.poll_drain)

    async def finish(self) -> None:
        """Ends what this end sends, and returns when the far end has everything. May be called again after a cancellation."""
        await until(self._sender.poll_finish)
