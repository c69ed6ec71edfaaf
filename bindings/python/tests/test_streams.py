"""Byte streams: whole, in order, in every kind of buffer, and what their ends say."""

import array
import asyncio
import hashlib

import noctule
import pytest
from conftest import stream_pair


async def test_ten_megabytes_come_back_whole(pair):
    data = b"".join(hashlib.sha512(n.to_bytes(4, "big")).digest() for n in range(160_000))

    async def echo():
        stream = await pair.theirs.accept_stream()
        async for block in stream:
            stream.write(block)
            await stream.drain()
        await stream.finish()

    async def send(stream):
        view = memoryview(data)
        for at in range(0, len(view), 300_007):
            stream.write(view[at : at + 300_007])
            await stream.drain()
        await stream.finish()

    stream = pair.ours.open_stream(tag=7)
    echoing = asyncio.create_task(echo())
    _, got = await asyncio.gather(send(stream), stream.read_to_end(len(data)))
    await echoing
    assert got == data
    assert pair.ours.stats().sent.app_bytes == len(data)
    outcome = await pair.ours.close()
    assert outcome.all_delivered and outcome.all_received and outcome.reason.is_clean


async def test_every_kind_of_buffer_is_taken(pair):
    ours, theirs = await stream_pair(pair)
    numbers = array.array("I", range(1000))
    changing = bytearray(b"x" * 5000)
    for data in (b"abc", bytes(100_000), changing, memoryview(changing)[5:10], numbers, b""):
        ours.write(data)
        before = bytes(memoryview(data).cast("B"))
        if data is changing:
            changing[:] = b"y" * 5000  # taken is taken
        assert await theirs.readexactly(len(before)) == before
    with pytest.raises(BufferError):
        ours.write(memoryview(b"abcdef")[::2])  # not one piece of memory
    for wrong in ("text", 5, None):
        with pytest.raises(TypeError, match="bytes-like"):
            ours.write(wrong)


async def test_reads_have_the_lengths_that_were_asked_for(pair):
    ours, theirs = await stream_pair(pair)
    ours.write(b"0123456789")
    assert await theirs.readexactly(3) == b"012"
    assert await theirs.readexactly(0) == b""
    buffer = bytearray(4)
    got = await theirs.readinto(memoryview(buffer)[1:])
    assert 1 <= got <= 3 and buffer[1 : 1 + got] == b"345"[:got]
    rest = b"0123456789"[3 + got :]
    assert await theirs.readexactly(len(rest)) == rest
    for wrong in (0, -1, 1 << 70):
        with pytest.raises((ValueError, OverflowError)):
            await theirs.read(wrong)
    with pytest.raises(ValueError):
        await theirs.readinto(bytearray())
    with pytest.raises(BufferError):
        await theirs.readinto(b"cannot be written")
    with pytest.raises(TypeError):
        await theirs.read("all")


async def test_the_end_is_read_after_everything_before_it(pair):
    ours, theirs = await stream_pair(pair)
    ours.write(b"the last words")
    await ours.finish()
    assert await theirs.readexactly(3) == b"the"
    with pytest.raises(noctule.IncompleteReadError) as short:
        await theirs.readexactly(100)
    assert (short.value.partial, short.value.expected) == (b" last words", 100)
    assert isinstance(short.value, (asyncio.IncompleteReadError, EOFError))
    assert await theirs.read() == b""
    assert await theirs.readinto(bytearray(3)) == 0
    with pytest.raises(noctule.UsageError, match="finished"):
        ours.write(b"more")
    await ours.finish()  # a second time is as good


async def test_a_stream_that_is_too_long_can_be_read_all_the_same(pair):
    ours, theirs = await stream_pair(pair)
    ours.write(b"z" * 1000)
    finishing = asyncio.create_task(ours.finish())
    with pytest.raises(noctule.LimitError, match="999"):
        await theirs.read_to_end(999)
    assert await theirs.read_to_end(1000) == b"z" * 1000
    await finishing


async def test_what_is_written_without_drain_arrives(pair):
    ours, theirs = await stream_pair(pair)
    block = bytes(range(256)) * 4096
    for _ in range(8):
        ours.write(block)
    assert ours.pending > 0
    finishing = asyncio.create_task(ours.finish())
    got = await theirs.read_to_end(1 << 30)
    await finishing
    assert got == block * 8 and ours.pending == 0


async def test_what_is_forgotten_is_finished(pair):
    ours, theirs = await stream_pair(pair)
    block = b"k" * (4 << 20)
    ours.write(block)
    del ours
    assert await theirs.read_to_end(1 << 30) == block


async def test_a_reset_is_read_with_its_code(pair):
    ours, theirs = await stream_pair(pair)
    reading = asyncio.create_task(theirs.read_to_end(100))
    await asyncio.sleep(0)
    ours.reset(42)
    with pytest.raises(noctule.StreamReset) as told:
        await reading
    assert (told.value.code, told.value.reason.code, told.value.reason.is_remote) == (42, "reset", True)
    assert isinstance(told.value, ConnectionError)
    ours.reset(43)
    with pytest.raises(noctule.UsageError, match="reset"):
        ours.write(b"x")
    with pytest.raises(noctule.UsageError, match="reset"):
        await ours.finish()


async def test_a_stop_ends_the_writing_with_its_code(pair):
    ours, theirs = await stream_pair(pair)
    theirs.stop(9)
    with pytest.raises(noctule.StreamStopped) as told:
        while True:
            ours.write(bytes(100_000))
            await ours.drain()
    assert told.value.code == 9
    with pytest.raises(noctule.StreamStopped):
        ours.write(b"x")
    with pytest.raises(noctule.StreamStopped):
        await ours.finish()
    with pytest.raises(noctule.UsageError, match="stop"):
        await theirs.read()


async def test_a_stream_in_one_direction_knows_its_direction(pair):
    ours, theirs = await stream_pair(pair, bidirectional=False, tag=5)
    assert (ours.can_read, ours.can_write, theirs.can_read, theirs.can_write, theirs.tag) == (False, True, True, False, 5)
    with pytest.raises(noctule.UsageError, match="written only"):
        await ours.read()
    with pytest.raises(noctule.UsageError, match="read only"):
        theirs.write(b"x")


async def test_streams_come_until_the_session_ends(pair):
    async def count():
        return len([stream.tag async for stream in pair.theirs.streams()])

    counting = asyncio.create_task(count())
    for tag in range(3):
        stream = pair.ours.open_stream(bidirectional=False, tag=tag)
        stream.write(b"x")
    await pair.ours.close()
    assert await counting == 3


async def test_answers_that_are_always_there_let_other_tasks_go_first(pair):
    """What is filled by another thread may never make its reader wait."""
    _, theirs = await stream_pair(pair)
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(1000):
        assert await theirs.readexactly(0) == b""
    task.cancel()
    assert turns >= 1000 // 16
