"""Two processes over loopback: one stream in writes of 1 MiB, then messages of 1 KiB, each for some seconds, in turns with other programs.

python bench/throughput.py [--seconds 5] [--rounds 3] [--rust PATH/loopback]

noctule: this package, asyncio. rust: `crates/net/examples/loopback.rs` (stream and messages). aioquic: from PyPI, if it is installed; its
messages are writes of 1 KiB on one stream, without borders, since a stream for each is far slower. Prints one row for each round, and the
medians. Measure a release build only: maturin build --release.
"""

import argparse
import asyncio
import importlib.util
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import noctule

BLOCK = bytes(1 << 20)
MESSAGE = bytes(1024)


async def count_stream(session: noctule.Session) -> int:
    stream = await session.accept_stream()
    buffer = bytearray(1 << 20)
    total = 0
    while n := await stream.readinto(buffer):
        total += n
    return total


async def count_messages(session: noctule.Session) -> int:
    flow = await session.accept_messages()
    total = 0
    async for _ in flow:
        total += 1
    return total


async def receive(kind: str) -> None:
    """The receiving process: prints its port and key, then how much came and in how many seconds."""
    identity = noctule.Identity.generate()
    async with noctule.listen("127.0.0.1:0", authorised=None, identity=identity) as server:
        print(server.port, identity.public_key, flush=True)
        session = await server.accept()
        assert session is not None
        started = time.perf_counter()
        total = await (count_stream(session) if kind == "stream" else count_messages(session))
        print(total, time.perf_counter() - started, flush=True)
        await session.wait_closed()


async def send_stream(session: noctule.Session, seconds: float) -> None:
    stream = session.open_stream(bidirectional=False)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        stream.write(BLOCK)
        await stream.drain()
    await stream.finish()


async def send_messages(session: noctule.Session, seconds: float) -> None:
    flow = session.open_messages()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(64):
            await flow.send(MESSAGE)
    await flow.finish()


async def ours(kind: str, seconds: float) -> float:
    """Bytes, or messages, per second."""
    child = subprocess.Popen([sys.executable, __file__, "--receive", kind], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    port, key = child.stdout.readline().split()
    async with noctule.connect(f"127.0.0.1:{port}", key=key) as session:
        await (send_stream(session, seconds) if kind == "stream" else send_messages(session, seconds))
        total, elapsed = child.stdout.readline().split()
    child.wait()
    return float(total) / float(elapsed)


def rust(program: str, kind: str, seconds: float) -> float:
    """The same by the Rust example."""
    options = [] if kind == "stream" else ["--messages", str(len(MESSAGE))]
    out = subprocess.run([program, "--seconds", str(seconds), *options], capture_output=True, text=True, check=True).stdout
    found = re.search(r"([\d.]+) Gbit/s \((\d+) MB in ([\d.]+) s\)", out)
    assert found is not None, out
    rate = float(found[1]) * 1e9 / 8
    return rate if kind == "stream" else rate / len(MESSAGE)


async def aioquic(kind: str, seconds: float) -> float:
    """The same by aioquic, in this process and a child."""
    from aioquic.asyncio.client import connect
    from aioquic.quic.configuration import QuicConfiguration

    with tempfile.TemporaryDirectory() as directory:
        certificate(Path(directory))
        child = subprocess.Popen([sys.executable, __file__, "--receive-quic", kind, directory], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        port = int(child.stdout.readline())
        configuration = QuicConfiguration(alpn_protocols=["bench"], verify_mode=0)
        async with connect("127.0.0.1", port, configuration=configuration) as client:
            end = time.perf_counter() + seconds
            _, writer = await client.create_stream(is_unidirectional=True)
            writer.write(b"-")
            stream = client._quic._streams[writer.get_extra_info("stream_id")]
            piece, at_once = (BLOCK[: 64 << 10], 1) if kind == "stream" else (MESSAGE, 64)
            while time.perf_counter() < end:
                for _ in range(at_once):
                    writer.write(piece)
                # aioquic buffers without limit, and becomes slower the more it holds.
                while len(stream.sender._buffer) > 256 << 10:
                    await asyncio.sleep(0)
            writer.write_eof()
            while not stream.sender.is_finished:
                await asyncio.sleep(0.001)
        total, elapsed = child.stdout.readline().split()
        child.kill()
        child.wait()
    return float(total) / float(elapsed)


async def receive_quic(kind: str, directory: Path) -> None:
    """The receiving process of aioquic: counts until the connection ends."""
    from aioquic.asyncio.protocol import QuicConnectionProtocol
    from aioquic.asyncio.server import serve
    from aioquic.quic.configuration import QuicConfiguration
    from aioquic.quic.events import ConnectionTerminated, QuicEvent, StreamDataReceived

    over = asyncio.Event()
    first = last = total = 0.0

    class Counter(QuicConnectionProtocol):
        def quic_event_received(self, event: QuicEvent) -> None:
            nonlocal first, last, total
            if isinstance(event, StreamDataReceived):
                last = time.perf_counter()
                first = first or last
                total += len(event.data) / (1 if kind == "stream" else len(MESSAGE))
            elif isinstance(event, ConnectionTerminated):
                over.set()

    configuration = QuicConfiguration(is_client=False, alpn_protocols=["bench"])
    configuration.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=Counter)
    print(server._transport.get_extra_info("sockname")[1], flush=True)
    await over.wait()
    print(int(total), last - first, flush=True)


def certificate(directory: Path) -> None:
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=directory, check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rust", help="the example `loopback`, built by cargo build --release")
    parser.add_argument("--receive", choices=["stream", "messages"], help=argparse.SUPPRESS)
    parser.add_argument("--receive-quic", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.receive:
        return asyncio.run(receive(chosen.receive))
    if chosen.receive_quic:
        return asyncio.run(receive_quic(chosen.receive_quic[0], Path(chosen.receive_quic[1])))
    ways: dict[str, Callable[[str], Awaitable[float]]] = {"noctule": lambda kind: ours(kind, chosen.seconds)}
    if chosen.rust:
        ways["rust"] = lambda kind: asyncio.to_thread(rust, chosen.rust, kind, chosen.seconds)
    if importlib.util.find_spec("aioquic") is not None:
        ways["aioquic"] = lambda kind: aioquic(kind, chosen.seconds)
    for kind, unit, scale in (("stream", "Mbit/s", 8e-6), ("messages", "messages of 1 KiB/s", 1.0)):
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for n in range(chosen.rounds):
            for name, way in ways.items():
                rates[name].append(asyncio.run(_rate(way, kind)) * scale)
            print(f"{kind} {n + 1}:", *(f"{name} {found[-1]:.0f}" for name, found in rates.items()), unit, flush=True)
        print(f"{kind}, median:", *(f"{name} {statistics.median(found):.0f}" for name, found in rates.items()), unit, flush=True)


async def _rate(way: Callable[[str], Awaitable[float]], kind: str) -> float:
    return await way(kind)


if __name__ == "__main__":
    main()
