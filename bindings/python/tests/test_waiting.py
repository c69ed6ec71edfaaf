"""What cancelled tasks, closed loops, forks and subinterpreters do to tasks and threads that wait."""

import asyncio
import gc
import os
import subprocess
import sys
import threading

import noctule
import pytest
from conftest import flow_pair, make_pair, stream_pair


async def cancelled(coroutine, turns):
    """Runs a coroutine for some turns of the loop and cancels it: its result if it was quicker."""
    task = asyncio.create_task(coroutine)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


async def test_reads_that_are_cancelled_lose_nothing(pair):
    """The same bytes arrive whatever was cancelled, at whatever turn, by whatever call."""
    ours, theirs = await stream_pair(pair)
    data = os.urandom(1 << 20)

    async def write():
        for at in range(0, len(data), 1000):
            ours.write(data[at : at + 1000])
            await cancelled(ours.drain(), at // 1000 % 3)
            if at % 7000 == 0:
                await asyncio.sleep(0)
        await ours.finish()

    writing = asyncio.create_task(write())
    got = bytearray()
    turn = 0
    while len(got) < len(data):
        turn += 1
        wanted = min(1 + turn * 37 % 3000, len(data) - len(got))
        block = await cancelled(theirs.readexactly(wanted) if turn % 2 else theirs.read(wanted), turn % 5)
        got += block or b""
    assert bytes(got) == data
    await writing


async def test_messages_and_accepts_that_are_cancelled_lose_nothing(pair):
    sender, receiver = await flow_pair(pair)

    async def send():
        sent = tries = 0
        while sent < 500:
            tries += 1
            if await cancelled(sender.send(sent.to_bytes(4, "big") * 300), tries % 4) is not None:
                sent += 1
        await sender.finish()

    sending = asyncio.create_task(send())
    got = []
    turn = 0
    while len(got) < 500:
        turn += 1
        message = await cancelled(receiver.recv(), turn % 4)
        if message is not None:
            got.append(int.from_bytes(message.data[:4], "big"))
    assert got == list(range(500))
    await sending
    for tag in range(20):
        pair.ours.open_stream(tag=tag).write(b"x")
    tags = set()
    while len(tags) < 20:
        turn += 1
        stream = await cancelled(pair.theirs.accept_stream(), turn % 3)
        if stream is not None:
            tags.add(stream.tag)
    assert tags == set(range(20))


async def test_waits_that_are_given_up_leave_no_trace(pair):
    """A thousand time-outs of one read cost no memory, and do not slow the one that succeeds."""
    from noctule import _wait

    ours, theirs = await stream_pair(pair)
    for _ in range(1000):
        assert await cancelled(theirs.read(), 2) is None
    bridge = _wait._bridge_of(asyncio.get_running_loop())
    assert not bridge.futures
    reading = asyncio.create_task(theirs.read())
    await asyncio.sleep(0)
    ours.write(b"at last")
    assert await reading == b"at last"


async def test_several_tasks_may_wait_for_the_same(pair):
    tasks = [asyncio.create_task(pair.theirs.accept_stream()) for _ in range(5)]
    waiting = [asyncio.create_task(pair.theirs.wait_closed()) for _ in range(5)]
    await asyncio.sleep(0.01)
    for tag in range(5):
        pair.ours.open_stream(tag=tag).write(b"x")
    assert {stream.tag for stream in await asyncio.gather(*tasks)} == set(range(5))
    await pair.ours.close()
    assert all(outcome.reason.is_clean for outcome in await asyncio.gather(*waiting))


def test_a_loop_that_is_closed_while_tasks_wait_takes_them_along():
    """Nothing hangs, nothing crashes, and the objects can be freed; another loop goes on with the same session."""
    identity = noctule.Identity.generate()
    loop = asyncio.new_event_loop()
    pair = loop.run_until_complete(make_pair(identity))
    ours, theirs = loop.run_until_complete(stream_pair(pair))
    waiting = loop.create_task(theirs.readexactly(10))
    waiting._log_destroy_pending = False
    loop.run_until_complete(asyncio.sleep(0.01))
    assert not waiting.done()
    loop.close()
    ours.write(b"0123456789")
    del waiting, loop
    gc.collect()

    async def go_on():
        assert await theirs.readexactly(10) == b"0123456789"
        pair.ours.abort()
        await pair.server.close()

    asyncio.run(go_on())


def test_loops_in_several_threads_share_a_session():
    identity = noctule.Identity.generate()
    pair = asyncio.run(make_pair(identity))
    sender = pair.ours.open_messages(ordered=False)
    got = []

    async def receive():
        flow = await pair.theirs.accept_messages()
        async for message in flow:
            got.append(message.data)

    async def send():
        for n in range(1000):
            await sender.send(n.to_bytes(2, "big"))
        await sender.finish()

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for work in (receive, send)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [n.to_bytes(2, "big") for n in range(1000)]

    async def end():
        pair.ours.abort()
        await pair.server.close()

    asyncio.run(end())


def run(program: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)


IN_USE = """
import asyncio, gc, os, noctule, noctule.blocking
identity = noctule.Identity.generate()
server = noctule.blocking.listen("127.0.0.1:0", authorised=None, identity=identity)
session = noctule.blocking.connect(f"127.0.0.1:{server.port}", key=identity.public_key)
stream = session.open_stream()
stream.write(b"x" * 100_000)
"""


def test_a_forked_child_is_told_and_does_not_hang():
    done = run(
        IN_USE
        + """
for _ in range(20):
    pid = os.fork()
    if pid == 0:
        calls = [lambda: stream.write(b"x"), stream.finish, lambda: stream.read(5), session.stats, session.close, server.accept, session.abort,
                 lambda: noctule.blocking.connect("127.0.0.1:1", key=None), lambda: asyncio.run(noctule.Endpoint.client().close())]
        for call in calls:
            try:
                call()
            except RuntimeError as error:
                assert "fork" in str(error), error
            else:
                os._exit(1)
        del session, stream, server, calls, call
        gc.collect()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
stream.write(b"the parent goes on")
print("fine")
"""
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done


def test_a_process_that_forks_before_the_first_endpoint_is_free_to_use_it():
    done = run("import os, sys, noctule\nif os.fork() == 0:\n" + "".join(f"    {line}\n" for line in IN_USE.splitlines()) + "    os._exit(0)\nsys.exit(os.waitstatus_to_exitcode(os.wait()[1]))")
    assert done.returncode == 0, done


def test_a_subinterpreter_is_refused_in_words():
    done = run(
        """
import noctule
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
other = interpreters.create()
words = None
try:
    words = interpreters.run_string(other, "import noctule")
except Exception as error:
    words = error
print(words)
"""
    )
    assert done.returncode == 0 and "subinterpreter" in done.stdout, done


def test_a_program_may_end_with_everything_open():
    done = run(IN_USE + "print('fine')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", ""), done
