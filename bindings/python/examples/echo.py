"""Sends back what it reads, and a client of it.

python examples/echo.py                                  both in one process
python examples/echo.py serve '[::]:4242' server.key     the file is made if it is not there
python examples/echo.py call HOST:4242 PUBLIC-KEY
"""

import asyncio
import sys

import noctule


async def answer(session: noctule.Session) -> None:
    async for stream in session.streams():
        async for block in stream:
            stream.write(block)
            await stream.drain()
        await stream.finish()


async def serve(address: str, identity: noctule.Identity) -> None:
    async with noctule.listen(address, authorised=None, identity=identity) as server:
        print("serving", *server.addresses, "as", identity.public_key, flush=True)
        tasks = set()
        async for session in server:
            task = asyncio.create_task(answer(session))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


async def call(address: str, key: str) -> None:
    async with noctule.connect(address, key=key) as session:
        stream = session.open_stream()
        stream.write(b"across a lossy link")
        await stream.finish()  # the far end has it
        print((await stream.read_to_end(1000)).decode())


async def both() -> None:
    identity = noctule.Identity.generate()
    async with noctule.listen("127.0.0.1:0", authorised=None, identity=identity) as server:

        async def accept() -> None:
            async for session in server:
                await answer(session)

        accepting = asyncio.create_task(accept())
        await call(f"127.0.0.1:{server.port}", str(identity.public_key))
    await accepting


def main(arguments: list[str]) -> None:
    match arguments:
        case []:
            asyncio.run(both())
        case ["serve", address, key_file]:
            asyncio.run(serve(address, noctule.Identity.load(key_file, create=True)))
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
        sys.exit(f"echo: {error}")
