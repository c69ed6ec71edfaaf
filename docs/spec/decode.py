#!/usr/bin/env python3
"""A second decoder of noctule's wire format, written from wire.md, flow.md, session.md, blind.md and codes.md without the Rust code.

    python3 docs/spec/decode.py FILE          prints each datagram of a capture: pcap, or text as in capture.txt
    python3 docs/spec/decode.py TEXT PCAP     writes a text capture as pcap, for tcpdump and Wireshark

Headers of every packet are decoded, frames of packets that are not encrypted (wire.md 6.5). check_format.py decodes the test vectors with it,
check_vectors.py checks keys and tags. The standard library is enough.
"""
import ipaddress
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).parent
VERSION = 0x6E6F6332


class Malformed(Exception):
    """Bytes that the specification does not allow."""


class Reader:
    """Bytes from the front. A field that reaches beyond the end is malformed (wire.md 1)."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def left(self):
        return len(self.data) - self.at

    def take(self, n):
        if n > self.left():
            raise Malformed(f"{n} bytes wanted at {self.at}, {self.left()} left")
        self.at += n
        return self.data[self.at - n : self.at]

    def rest(self):
        return self.take(self.left())

    def number(self, n):
        return int.from_bytes(self.take(n), "big")

    def varint(self):
        first = self.number(1)
        return int.from_bytes(bytes([first & 0x3F]) + self.take((1 << (first >> 6)) - 1), "big")

    def prefixed(self):
        return self.take(self.varint())

    def bitmap(self, n):
        bits = int.from_bytes(self.take((n + 7) // 8), "little")
        if bits >> n:
            raise Malformed("bits beyond the end of a bitmap")
        return bits


def one_of(value, names, what):
    if value not in names:
        raise Malformed(f"{what} {value}")
    return names[value]


# --- frames, wire.md 4 ---

MODES = {0: "Brtp", 1: "Btp", 2: "Transparent"}
KINDS = {0: "OrderedMessages", 1: "UnorderedMessages", 2: "Stream"}
CLASSES = {0: "Latency", 1: "Bulk"}
LAYERS = {0: "Wire", 1: "Crypto", 2: "Link", 3: "Flow", 4: "Session", 5: "Application"}


def coded(r, with_length):
    flow, base, form = r.varint(), r.varint(), r.number(1)
    n, form = (form & 63) + 1, form >> 6
    frame = {"flow": flow, "base": base, "n": n}
    if form == 0:
        index = r.number(1)
        if index >= n:
            raise Malformed(f"index {index} of {n}")
        text, frame["index"] = f"index {index}", index
    elif form == 1:
        seed = r.number(2)
        text, frame["coefficients"] = f"seed {seed}", coefficients(seed, n)
    elif form == 2:
        bits = r.bitmap(n)
        if bits == 0:
            raise Malformed("an empty bitmap")
        seed = r.number(2)
        text = f"bitmap {bits:#x} seed {seed}"
        frame["coefficients"] = [c if bits >> j & 1 else 0 for j, c in enumerate(coefficients(seed, n))]
    else:
        vector = r.take(n)
        text, frame["coefficients"] = f"vector {vector.hex()}", list(vector)
    symbol = r.prefixed() if with_length else r.rest()
    if len(symbol) < 2:
        raise Malformed("a symbol of less than two bytes")
    if "index" in frame and int.from_bytes(symbol[:2], "big") != len(symbol) - 2:
        raise Malformed("an uncoded symbol whose length field is not its length (flow.md 1)")
    frame["symbol"] = symbol
    return f"CODED flow {flow} span {base}+{n} {text} len {len(symbol)}", frame


def ack(r, with_ecn):
    path, largest, delay = r.varint(), r.varint(), r.varint()
    if path >> 32:
        raise Malformed(f"path {path}")
    ecn = [r.varint() for _ in range(3)] if with_ecn else None
    segments = r.number(1)
    if segments == 0:
        raise Malformed("an ACK without segments")
    runs, next_down = [], largest  # (arrived, count), from the largest number down
    for _ in range(segments):
        head = r.varint()
        count = head >> 1
        if count == 0:
            raise Malformed("an empty segment")
        if head & 1:
            bits = r.take((count + 7) // 8)
            steps = [(bits[j // 8] >> j % 8 & 1, 1) for j in range(count)]
        else:
            steps = [(arrived, r.varint()) for _ in range(count) for arrived in (1, 0)]
        for arrived, n in steps:
            if n:
                runs.append((arrived, n))
                next_down -= n
    if next_down < -1:
        raise Malformed("a segment below packet 0")
    ranges, at = [], largest
    for arrived, n in runs:
        if arrived and ranges and ranges[-1][1] == at + 1:
            ranges[-1][1] = at - n + 1
        elif arrived:
            ranges.append([at, at - n + 1])
        at -= n
    if not ranges or ranges[0][0] != largest:
        raise Malformed("the largest packet of an ACK did not arrive")
    listed = " ".join(f"{high}-{low}" for high, low in ranges[:4]) + (" .." if len(ranges) > 4 else "")
    counts = f" ecn {ecn[0]}/{ecn[1]}/{ecn[2]}" if ecn else ""
    text = f"ACK path {path} {at + 1}..={largest} delay {delay / 1000:.3f} ms{counts} [{listed}]"
    return text, {"path": path, "ranges": ranges}


def address(raw):
    if len(raw) not in (4, 16):
        raise Malformed(f"an address of {len(raw)} bytes")
    return ipaddress.ip_address(raw)


def flow_open(r):
    r = Reader(r.prefixed())
    session, index, label, t = r.number(8), r.varint(), r.varint(), r.number(2)
    mode, kind, klass = (one_of(r.number(1), names, what) for names, what in ((MODES, "mode"), (KINDS, "kind"), (CLASSES, "class")))
    m, hops = r.number(1), r.number(1)
    if m not in (8, 16, 32, 64):
        raise Malformed(f"batch size {m}")
    r.varint()  # no-retransmit
    tag, flags = r.varint(), r.number(1)
    text = f"FLOW_OPEN flow {label} session {session:016x} index {index} {mode} {kind} {klass} T {t} M {m} hops {hops} tag {tag}"
    if flags & 1:
        text += f" lifetime {r.varint()} ms"
    if flags & 2:
        text += f" answers {r.varint()}"
    if flags & 8:
        to, source = address(r.prefixed()), address(r.prefixed())
        text += f" from {source} to {to} incarnation {r.varint()} first {r.varint()} fits {r.number(2)}"
        if flags & 16:
            text += f" part {r.varint()}"
        if flags & 32:
            r.take(16)
    return text + (" bidirectional" if flags & 4 else ""), {"session": session, "label": label}


def rank(r):
    flow, base, n, known = r.varint(), r.varint(), r.number(1), r.number(1)
    if not 1 <= n <= 64 or known > n:
        raise Malformed(f"rank {known} of {n}")
    return f"RANK flow {flow} span {base}+{n} rank {known} missing {r.bitmap(n):#x}", {}


def new_connection_id(r):
    path, sequence, cid = r.varint(), r.varint(), r.prefixed()
    if path >> 32 or not 4 <= len(cid) <= 8:
        raise Malformed(f"path {path}, id of {len(cid)} bytes")
    return f"NEW_CONNECTION_ID path {path} sequence {sequence} id {cid.hex()}", {"id": cid}


def step(r):
    value = r.number(1)
    if value > 1:
        raise Malformed(f"{value} is neither 0 nor 1")
    return value


def close(r):
    code, layer, application, frame, reason = r.varint(), r.number(1), r.varint(), r.varint(), r.prefixed()
    if len(reason) > 255:
        raise Malformed("a reason of more than 255 bytes")
    said = f'application {application}' if layer == 5 else f"code {code:#x}"
    return f'CLOSE {LAYERS.get(layer, "Link")} {said} frame {frame:#x} "{reason.decode()}"', {}


def fields(name, *words):
    """A frame of varints alone; a word with `:x` is shown in hexadecimal."""

    def read(r):
        shown = [f"{w.removesuffix(':x')} {r.varint():#x}" if w.endswith(":x") else f"{w} {r.varint()}" for w in words]
        return " ".join([name] + shown), {}

    return read


def simple(name, read):
    return lambda r: (f"{name} {read(r)}", {})


FRAMES = {
    0x00: lambda r: ("PADDING", {}),
    0x02: lambda r: ("PING", {}),
    0x04: lambda r: ack(r, False),
    0x06: lambda r: ack(r, True),
    0x08: lambda r: coded(r, False),
    0x0A: lambda r: coded(r, True),
    0x0C: flow_open,
    0x0E: fields("FLOW_END", "flow", "end"),
    0x10: fields("FLOW_REFUSED", "flow", "base", "reason:x"),
    0x12: fields("FLOW_RESET", "flow", "reason:x"),
    0x14: fields("FLOW_STOP", "flow", "reason:x"),
    0x16: fields("FLOW_SKIP", "flow", "floor"),
    0x18: rank,
    0x1A: fields("CREDIT", "flow", "limit", "done"),
    0x1C: new_connection_id,
    0x1E: fields("RETIRE_CONNECTION_ID", "sequence"),
    0x20: simple("PATH_CHALLENGE", lambda r: r.take(8).hex()),
    0x22: simple("PATH_RESPONSE", lambda r: r.take(8).hex()),
    0x24: lambda r: (f"REKEY generation {r.varint()} step {step(r)} noise {len(r.prefixed())}", {}),
    0x26: lambda r: (f"FRAGMENT id {r.varint()} index {step(r)} len {len(r.prefixed())}", {}),
    0x28: close,
    0x2A: lambda r: (f"DATAGRAM flow {r.varint()} number {r.varint()} len {len(r.rest())}", {}),
}


def frames(payload):
    """Texts and fields of all frames of an opened payload; a run of PADDING is one entry."""
    r, out = Reader(payload), []
    if not payload:
        raise Malformed("a packet without frames")
    while r.left():
        kind = r.varint()
        if kind % 2:
            r.prefixed()
            out.append((f"optional {kind:#x}", {}))
        elif kind not in FRAMES:
            raise Malformed(f"unknown frame {kind:#x}")
        elif kind or not out or out[-1][0] != "PADDING":
            out.append(FRAMES[kind](r))
    return out


# --- packets, wire.md 2 ---


def transport_parameters(data):
    """wire.md 5.4, as pairs of id and value."""
    r, out = Reader(data), []
    while r.left():
        out.append((r.varint(), r.prefixed()))
    known = [i for i, _ in out if 2 <= i <= 0x0E]
    if len(known) != len(set(known)):
        raise Malformed("a parameter twice")
    return out


PARAMETERS = {1: "connection_id", 2: "versions", 3: "ciphers", 4: "idle_timeout", 5: "max_datagram", 6: "max_ack_delay", 7: "ack_every", 8: "initial_credit"}
PARAMETERS |= {9: "max_message", 10: "max_flows", 11: "epoch_log2", 12: "plaintext", 13: "answered_size", 14: "restart_epoch"}


def show_parameters(data):
    words = []
    for number, value in transport_parameters(data):
        name = PARAMETERS.get(number, f"reserved {number:#x}" if number % 31 == 27 else f"unknown {number:#x}")
        if number in (4, 5, 6, 7, 8, 9, 10, 11, 13, 14):
            r = Reader(value)
            words.append(f"{name} {r.varint()}")
            if r.left():
                raise Malformed(f"{name} does not fill its value")
        else:
            words.append(f"{name} {value.hex()}".rstrip())
    return ", ".join(words)


def handshake_packet(r):
    """One handshake packet from the front of a datagram: text and fields."""
    first, version = r.number(1), r.number(4)
    destination, source = r.take(r.number(1)), r.take(r.number(1))
    ids = f"to {destination.hex() or '-'} from {source.hex() or '-'}"
    found = {"source": source}
    if version not in (0, VERSION):
        r.rest()
        return f"handshake of version {version:#010x} {ids}", found
    body, kind = Reader(r.take(r.number(2))), first >> 4 & 3
    if first & 0xF:
        raise Malformed(f"first byte {first:#04x}")
    if version == 0:
        if kind:
            raise Malformed("a version list with type bits")
        versions = [body.number(4) for _ in range(max(1, body.left() // 4))]
        if body.left():
            raise Malformed("a version list of odd length")
        return f"VERSIONS {ids} " + " ".join(f"{v:#010x}" for v in versions), found
    if not (4 <= len(destination) <= 8 and 4 <= len(source) <= 8):
        raise Malformed("ids are 4 to 8 bytes long")
    if kind == 0:
        pattern = one_of(body.number(1), {0: "IK", 1: "XX", 2: "IKpsk2", 3: "XXpsk3"}, "pattern")
        mac1, token = body.take(16), body.take(body.number(2))
        if len(token) > 128:
            raise Malformed("a token of more than 128 bytes")
        text = f"INITIATE {ids} {pattern} mac1 {mac1.hex()} token {token.hex() or '-'} noise {body.left()}"
        message = body.rest()
        # The first message of XX is a key and, in clear, the parameters; with a pre-shared key they are encrypted.
        if pattern == "XX" and len(message) > 32:
            text += f" ({show_parameters(message[32:])})"
        return text, found
    if kind == 3:
        token = body.take(body.number(2))
        if not 1 <= len(token) <= 128 or body.left():
            raise Malformed("a token of RETRY")
        return f"RETRY {ids} token {token.hex()}", found
    return f"{('RESPOND', 'FINISH')[kind - 1]} {ids} noise {body.left()}", found


def protected_packet(data, id_length):
    """Header of a protected packet, and its frames if it is not encrypted: the tag of such a packet ends in four zero bytes (wire.md 6.5)."""
    r = Reader(data)
    first = r.number(1)
    if first & 0xCF != 0x40:
        raise Malformed(f"first byte {first:#04x}")
    cid, number, sealed = r.take(id_length), r.number(4), r.rest()
    if len(sealed) < 17:
        raise Malformed("a protected packet without payload")
    payload, tag = sealed[:-16], sealed[-16:]
    header = f"PROTECTED to {cid.hex()} generation {first >> 4 & 3} number {number}"
    if tag[12:] != bytes(4):
        return f"{header} sealed {len(payload)}", {"id": cid, "frames": None}
    return f"{header} plaintext {len(payload)}", {"id": cid, "frames": frames(payload)}


def announcement(data):
    """blind.md 6."""
    if not 5 + 16 + 96 <= len(data) <= 512:
        raise Malformed(f"an announcement of {len(data)} bytes")
    r = Reader(data)
    return f"ANNOUNCEMENT version {r.number(5) & 0xFFFFFFFF:#010x} tag {r.take(16).hex()} noise {r.left()}", {}


class Ids:
    """Lengths of the connection ids that each side is addressed by; a protected packet does not tell (wire.md 2.1)."""

    def __init__(self):
        self.lengths = {}

    def note(self, cid):
        self.lengths[bytes(cid)] = len(cid)

    def length(self, data):
        return next((n for n in range(4, 9) if self.lengths.get(bytes(data[1 : 1 + n])) == n), 4)


def datagram(data, ids):
    """All packets of one datagram, as (text, fields)."""
    if not data:
        raise Malformed("an empty datagram")
    out, form = [], data[0] >> 6
    if data[0] == 0x43:
        return [announcement(data)]
    if form == 2:
        r = Reader(data)
        text, found = handshake_packet(r)
        ids.note(found["source"])
        out.append((text, found))
        behind = r.rest()
        if behind[:1] and behind[0] >> 6 == 1:
            data, form = behind, 1
        elif behind:
            out.append((f"ignored {len(behind)}", {}))
    if form == 1:
        text, found = protected_packet(data, ids.length(data))
        for _, frame in found["frames"] or []:
            if "id" in frame:
                ids.note(frame["id"])
        out.append((text, found))
    if not out:
        raise Malformed(f"first byte {data[0]:#04x}")
    return out


# --- coefficients, codes.md 1 and 2 ---


def gf_mul(a, b):
    product = 0
    while b:
        product ^= a * (b & 1)
        a = a << 1 ^ 0x11D * (a >> 7)
        b >>= 1
    return product


INVERSE = {a: next(b for b in range(1, 256) if gf_mul(a, b) == 1) for a in range(1, 256)}


def split_mix(state):
    mask = (1 << 64) - 1
    while True:
        state = state + 0x9E3779B97F4A7C15 & mask
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        yield z ^ z >> 31


def coefficients(seed, n):
    if seed < 192:
        return [INVERSE[(64 + seed) ^ j] for j in range(n)]
    outputs = split_mix(seed)
    row = b"".join(next(outputs).to_bytes(8, "little") for _ in range((n + 7) // 8))
    return [c or 1 for c in row[:n]]


def combine(row, symbols):
    out = bytearray(max((len(s) for c, s in zip(row, symbols) if c), default=0))
    for c, symbol in zip(row, symbols):
        for i, byte in enumerate(symbol if c else b""):
            out[i] ^= gf_mul(c, byte)
    return bytes(out)


# --- what sessions say, session.md 4 and 5 ---


def message_items(payload):
    """Items of a source packet of a message flow."""
    r, out, number = Reader(payload), [], None
    if not payload:
        raise Malformed("an empty payload")
    while r.left():
        lead = r.number(1)
        kind = one_of(lead >> 5, {0: "WHOLE", 1: "HEAD", 2: "MIDDLE", 3: "TAIL", 4: "ABORT"}, "kind")
        has_number, has_length = lead >> 4 & 1, lead >> 3 & 1
        if lead & 7 or has_number and kind not in ("WHOLE", "HEAD") or has_length and kind not in ("WHOLE", "TAIL"):
            raise Malformed(f"lead byte {lead:#04x}")
        if kind in ("WHOLE", "HEAD"):
            number = r.varint() if has_number else None if number is None else number + 1
            if number is None:
                raise Malformed("the first item of a packet has no number")
            said = f"{kind} {number}" + (f" of {r.varint()}" if kind == "HEAD" else "")
        else:
            distance = r.varint()
            if distance == 0:
                raise Malformed("a distance of 0")
            said = f"{kind} {distance} ago"
        if kind != "ABORT":
            data = r.prefixed() if has_length else r.rest()
            if not data and kind != "WHOLE":
                raise Malformed("an empty part")
            said += f" {data}" if len(data) < 16 else f" {len(data)} bytes"
        out.append(said)
    return out


def session_body(kind, r):
    v = r.varint
    if kind == 0x00:
        pairs = []
        while r.left():
            pairs.append((v(), int(Reader(r.prefixed()).varint())))
        return "PARAMS " + ", ".join(f"{i}: {value}" for i, value in pairs)
    if kind == 0x0A:
        text = f"CLOSE code {v()} layer {r.number(1)} application {v()} frame {v()} {r.prefixed()} linger {v()}"
        return text + totals(r)
    if kind == 0x0C:
        return f"CLOSED everything {step(r)}" + totals(r)
    if kind == 0x1A:
        return f"REKEY generation {v()} step {step(r)} noise {len(r.rest())}"
    if kind == 0x1C:
        text = f"KEYS generation {v()} last {step(r)}"
        return text + "".join(f" (flow {v()} part {v()} first {v()})" for _ in range(v()))
    if kind == 0x06:
        return f"RESET index {v()} {one_of(r.number(1), MODES, 'mode')} code {v()}"
    names = {0x02: ("ACCEPT",), 0x04: ("FLOW_DELIVERED", "index", "packets"), 0x08: ("STOP", "index", "code"), 0x0E: ("FITS", "symbol")}
    names |= {0x10: ("END", "index", "packets"), 0x12: ("SKIP", "index", "floor"), 0x14: ("POLLUTED", "index", "packets")}
    names |= {0x16: ("PART_DELIVERED", "index", "part", "packets"), 0x18: ("WINDOW", "index", "limit")}
    if kind not in names:
        raise Malformed(f"session frame {kind:#x}")
    name, *words = names[kind]
    return " ".join([name] + [f"{w} {v()}" for w in words])


def totals(r):
    opened = r.varint()
    return f" opened {opened}" + "".join(f" (flow {r.varint()} packets {r.varint()})" for _ in range(r.varint()))


def session_frames(message):
    r, out = Reader(message), []
    while r.left():
        kind, body = r.varint(), Reader(r.prefixed())
        if kind % 2:
            continue
        out.append(session_body(kind, body))
        if body.left():
            raise Malformed(f"{body.left()} bytes left over in {out[-1]}")
    return out


# --- vectors ---


def read_vectors(path=HERE / "vectors.txt"):
    """Sections of vectors.txt: key -> values, and key -> what the comment above the first says."""
    sections, said, current, remark = {}, {}, None, None
    for line in path.read_text().splitlines():
        if line.startswith("["):
            current = sections.setdefault(line[1:-1], {})
            notes = said.setdefault(line[1:-1], {})
        elif line.startswith("# "):
            remark = line[2:]
        elif " = " in line:
            key, value = line.split(" = ", 1)
            current.setdefault(key, []).append(value)
            if remark:
                notes.setdefault(key, remark)
            remark = None
    return sections, said


def expect(what, ours, theirs):
    if ours != theirs:
        raise SystemExit(f"{what}:\n  decoded  {ours}\n  expected {theirs}")


# --- captures ---


def text_capture(path):
    """Lines `seconds source destination hex [lost]`; an address is one of IPv4 with a port."""
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            at, source, destination, raw = line.split()[:4]
            yield float(at), source, destination, bytes.fromhex(raw)


def pcap_capture(path):
    data = path.read_bytes()
    magic = struct.unpack("<I", data[:4])[0]
    order = "<" if magic in (0xA1B2C3D4, 0xA1B23C4D) else ">"
    magic, _, _, _, _, _, link = struct.unpack(order + "IHHiIII", data[:24])
    if magic not in (0xA1B2C3D4, 0xA1B23C4D):
        raise Malformed(f"{path} is no pcap file")
    unit = 1e9 if magic == 0xA1B23C4D else 1e6
    skip = one_of(link & 0xFFFF, {1: 14, 12: 0, 101: 0, 113: 16, 228: 0, 229: 0, 276: 20}, "link type")
    at = 24
    while at < len(data):
        seconds, fraction, held, _ = struct.unpack(order + "IIII", data[at : at + 16])
        packet, at = data[at + 16 + skip : at + 16 + held], at + 16 + held
        version = packet[0] >> 4 if packet else 0
        start, protocol = (packet[0] % 16 * 4, packet[9]) if version == 4 else (40, packet[6]) if version == 6 else (0, 0)
        if protocol != 17:
            continue
        hosts = [ipaddress.ip_address(packet[12:16]), ipaddress.ip_address(packet[16:20])] if version == 4 else [ipaddress.ip_address(packet[8:24]), ipaddress.ip_address(packet[24:40])]
        ports = struct.unpack(">HH", packet[start : start + 4])
        yield seconds + fraction / unit, f"{hosts[0]}:{ports[0]}", f"{hosts[1]}:{ports[1]}", packet[start + 8 :]


def show_capture(path):
    """Prints a capture and checks what only a whole capture shows: each combination is that of the uncoded symbols which were seen."""
    ids, symbols, counts = Ids(), {}, {"datagrams": 0, "frames": 0, "combinations checked": 0}
    with path.open("rb") as f:
        capture = pcap_capture if f.read(4) in (b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d") else text_capture
    for at, source, destination, data in capture(path):
        counts["datagrams"] += 1
        print(f"{at:.6f} {source} > {destination} {len(data)}")
        for text, found in datagram(data, ids):
            print(f"    {text}")
            for said, frame in found.get("frames") or []:
                counts["frames"] += 1
                print(f"        {said}")
                if "symbol" not in frame:
                    continue
                span = [(source, destination, frame["flow"], frame["base"] + j) for j in range(frame["n"])]
                if "index" in frame:
                    symbols[span[frame["index"]]] = frame["symbol"]
                elif all(key in symbols for key, c in zip(span, frame["coefficients"]) if c):
                    expect("combination", frame["symbol"].hex(), combine(frame["coefficients"], [symbols.get(key, b"") for key in span]).hex())
                    counts["combinations checked"] += 1
    print(", ".join(f"{n} {what}" for what, n in counts.items()))


def write_pcap(text, out):
    """IPv4 without a link layer (LINKTYPE_RAW), times in nanoseconds."""
    with out.open("wb") as f:
        f.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 101))
        for at, source, destination, data in text_capture(text):
            (host, port), (to, to_port) = (a.rsplit(":", 1) for a in (source, destination))
            udp = struct.pack(">HHHH", int(port), int(to_port), 8 + len(data), 0) + data
            head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + ipaddress.ip_address(host).packed + ipaddress.ip_address(to).packed
            total = sum(struct.unpack(">10H", head))
            total = (total & 0xFFFF) + (total >> 16)
            head = head[:10] + struct.pack(">H", 0xFFFF - (total + (total >> 16)) & 0xFFFF) + head[12:]
            f.write(struct.pack("<IIII", int(at), round(at % 1 * 1e9), len(head + udp), len(head + udp)) + head + udp)


def main():
    match sys.argv[1:]:
        case [path]:
            show_capture(pathlib.Path(path))
        case [text, out]:
            write_pcap(pathlib.Path(text), pathlib.Path(out))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main()
    except Malformed as error:
        sys.exit(f"malformed: {error}")
    except BrokenPipeError:
        sys.stderr.close()
