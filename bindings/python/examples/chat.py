"""A conversation: each line is a message that is worth nothing after five seconds.

python examples/chat.py listen '[::]:4242' server.key
python examples/chat.py call HOST:4242 PUBLIC-KEY
"""

import asyncio
import sys
from datetime import timedelta

import noctule


async def lines() -> asyncio.StreamReader:
    """Standard input, line by line."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def show(session: noctule.Session) -> None:
    flow = await session.accept_messages()
    async for message in flow:
        print(">", message.data.decode(errors="replace"), flush=True)


async def say(session: noctule.Session) -> None:
    flow = session.open_messages(mode="btp", lifetime=timedelta(seconds=5), traffic_class="latency")
    reader = await lines()
    while line := await reader.readline():
        await flow.send(line.rstrip(b"\n"))
    await flow.finish()


async def talk(session: noctule.Session) -> None:
    """Until either side has no more to say."""
    tasks = [asyncio.create_task(show(session)), asyncio.create_task(say(session))]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    outcome = await session.close()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception) and not outcome.reason.is_clean:
            raise result


async def listen(address: str, key_file: str) -> None:
    identity = noctule.Identity.load(key_file, create=True)
    async with noctule.listen(address, authorised=None, identity=identity) as server:
        print(f"waiting on port {server.port} as {identity.public_key}", flush=True)
        session = await server.accept()
        assert session is not None, "nobody else closes the endpoint"
        print(f"{session.peer_key} is here", flush=True)
        await talk(session)


async def call(address: str, key: str) -> None:
    async with noctule.connect(address, key=key) as session:
        await talk(session)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["listen", address, key_file]:
            asyncio.run(listen(address, key_file))
        case ["call", address, key]:
            asyncio.run(call(address, key))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
    except (noctule.Error, OSError, ValueError) as error:
        sys.exit(f"chat: {error}")
