"""Waiting: on an event loop, or in a blocked thread.

The compiled part never waits. A call that has no answer yet returns ``None`` and keeps the ``Waiter`` that it was given; the packet loop
wakes it without the interpreter's lock, by a byte into a socket. An answer is only taken by the task that asks for it, and at the moment
at which it returns it: so a task that is cancelled while it waits has taken nothing.
"""

from __future__ import annotations

import asyncio
import select
import threading
import time
import weakref
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from ._core import Bridge, Waiter

T = TypeVar("T")
P = ParamSpec("P")

#: Answers that are there at once, one after the other, before a task lets the others of its event loop go first.
_PATIENCE = 16


class _LoopBridge:
    """What wakes the tasks of one event loop. The loop keeps it, as the owner of a descriptor that it looks at."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.core = Bridge()
        self.futures: dict[int, asyncio.Future[None]] = {}
        self.answered = 0
        loop.add_reader(self.core.fileno(), self._wake)

    def _wake(self) -> None:
        for number in self.core.take():
            future = self.futures.pop(number, None)
            if future is not None and not future.done():
                future.set_result(None)


# The loop holds its bridge by its reader, and nobody else does: a loop that is closed or forgotten takes it along, whatever still waits.
_bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_LoopBridge]] = weakref.WeakKeyDictionary()


def _bridge_of(loop: asyncio.AbstractEventLoop) -> _LoopBridge:
    known = _bridges.get(loop)
    bridge = known() if known is not None else None
    if bridge is None:
        bridge = _LoopBridge(loop)
        _bridges[loop] = weakref.ref(bridge)
    return bridge


async def until(poll: Callable[Concatenate[Waiter | None, P], T | None], *args: P.args, **kwargs: P.kwargs) -> T:
    """The answer of ``poll``, waiting for it as long as it takes."""
    loop = asyncio.get_running_loop()
    bridge = _bridge_of(loop)
    bridge.answered += 1
    if bridge.answered % _PATIENCE == 0:
        # Before the answer is taken: a task that is cancelled here loses nothing.
        await asyncio.sleep(0)
    answer = poll(None, *args, **kwargs)
    while answer is None:
        waiter = bridge.core.waiter()
        future = bridge.futures[waiter.id] = loop.create_future()
        try:
            answer = poll(waiter, *args, **kwargs)
            if answer is None:
                await future
        finally:
            waiter.forget()
            bridge.futures.pop(waiter.id, None)
    return answer


class _ThreadBridge(threading.local):
    """What wakes one thread."""

    def __init__(self) -> None:
        self.core = Bridge()
        self.descriptors = select.poll()
        self.descriptors.register(self.core.fileno(), select.POLLIN)

    def wait(self, waiter: Waiter, deadline: float | None) -> None:
        """Returns when the waiter is woken; ``TimeoutError`` at the deadline. Signals are handled meanwhile."""
        while waiter.id not in self.core.take():
            left = None
            if deadline is not None:
                left = max(0.0, deadline - time.monotonic()) * 1000
            if not self.descriptors.poll(left):
                raise TimeoutError("nothing happened in time")


_thread = _ThreadBridge()


def blocked(timeout: float | None, poll: Callable[Concatenate[Waiter | None, P], T | None], *args: P.args, **kwargs: P.kwargs) -> T:
    """The answer of ``poll``, blocking this thread for at most ``timeout`` seconds (``None``: as long as it takes)."""
    answer = poll(None, *args, **kwargs)
    if answer is None:
        if timeout is not None and timeout < 0:
            raise ValueError(f"a timeout is a number of seconds, 0 or more: {timeout}")
        deadline = None if timeout is None else time.monotonic() + timeout
        while answer is None:
            waiter = _thread.core.waiter()
            try:
                answer = poll(waiter, *args, **kwargs)
                if answer is None:
                    _thread.wait(waiter, deadline)
            finally:
                waiter.forget()
    return answer
