"""Flows of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _core
from ._core import Message
from ._options import Seconds, optional_seconds
from ._types import FlowStats
from ._wait import until

if TYPE_CHECKING:
    from typing_extensions import Buffer


class SendingEnd:
    """What the asyncio sender and the blocking one have in common."""

    def __init__(self, core: _core.MessageSender, priority: int) -> None:
        self._core = core
        self._priority = priority

    def cancel(self, number: int) -> bool:
        """Withdraws the message with this number; ``False``: it was sent already."""
        return self._core.cancel(number)

    def reset(self, code: int = 0) -> None:
        """Gives the flow up: what has not arrived is lost, and the far end reads ``StreamReset(code)``."""
        self._core.reset(code)

    def stats(self) -> FlowStats:
        """Counts of the sending side, while the flow lasts; ``Session.stats()`` keeps the sums."""
        return FlowStats(**self._core.stats())


class ReceivingEnd:
    """What the asyncio receiver and the blocking one have in common."""

    def __init__(self, core: _core.MessageReceiver) -> None:
        self._core = core

    @property
    def mode(self) -> str:
        """The promise that the far end opened the flow with: ``brtp``, ``btp`` or ``transparent``."""
        return self._core.mode

    @property
    def tag(self) -> int:
        """The number that the far end gave to the flow."""
        return self._core.tag

    def stop(self, code: int = 0) -> None:
        """Tells the far end that no more is wanted: its sends fail with ``StreamStopped(code)``."""
        self._core.stop(code)

    def stats(self) -> FlowStats:
        """Counts of the receiving side, while the flow lasts; ``Session.stats()`` keeps the sums."""
        return FlowStats(**self._core.stats())


class MessageSender(SendingEnd):
    """Sends messages. A sender that is dropped is finished: what was queued is delivered."""

    async def send(self, data: Buffer, *, lifetime: Seconds | None = None, priority: int | None = None) -> int:
        """Queues a message, waiting for room: its number within the flow. A task that is cancelled while it waits has queued nothing.

        ``lifetime`` and ``priority`` (0 to 255, more goes first) take the place of the flow's own.
        """
        return await until(
            self._core.poll_send, data, optional_seconds(lifetime), self._priority if priority is None else priority
        )

    async def finish(self) -> None:
        """Ends the flow, and returns when the far end has everything that has not expired."""
        await until(self._core.poll_finish)


class MessageReceiver(ReceivingEnd):
    """Receives messages: ``async for message in flow``. A receiver that is dropped tells the far end to stop."""

    async def recv(self) -> Message | None:
        """The next message; ``None`` after the last one. A task that is cancelled has taken nothing."""
        answer = await until(self._core.poll_recv)
        return answer if isinstance(answer, Message) else None

    def __aiter__(self) -> MessageReceiver:
        return self

    async def __anext__(self) -> Message:
        """The next message."""
        answer = await until(self._core.poll_recv)
        if isinstance(answer, Message):
            return answer
        raise StopAsyncIteration
