"""Sends one file to another host, without an event loop.

python examples/file.py receive '[::]:4242' server.key INTO    takes one file, writes it to INTO, which must not be there
python examples/file.py send FILE HOST:4242 PUBLIC-KEY
"""

import sys
from pathlib import Path

import noctule
from noctule import blocking

BLOCK = 1 << 20


def receive(address: str, key_file: str, into: Path) -> None:
    identity = noctule.Identity.load(key_file, create=True)
    with blocking.listen(address, authorised=None, identity=identity) as server:
        print(f"receiving on port {server.port} as {identity.public_key}", flush=True)
        session = server.accept()
        assert session is not None, "nobody else closes the endpoint"
        stream = session.accept_stream()
        with into.open("xb") as file:
            try:
                size = sum(file.write(block) for block in stream)
            except BaseException:
                into.unlink()  # half a file is none
                raise
        session.wait_closed()
        print(f"{size} bytes from {session.peer_key}")


def send(path: Path, address: str, key: str) -> None:
    with path.open("rb") as file, blocking.connect(address, key=key) as session:
        stream = session.open_stream(bidirectional=False)
        while block := file.read(BLOCK):
            stream.write(block)
        stream.finish()
        outcome = session.close()
        print("delivered" if outcome.all_delivered else f"not delivered: {outcome.reason}")


def main(arguments: list[str]) -> None:
    match arguments:
        case ["receive", address, key_file, into]:
            receive(address, key_file, Path(into))
        case ["send", path, address, key]:
            send(Path(path), address, key)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
    except (noctule.Error, OSError, ValueError) as error:
        sys.exit(f"file: {error}")
