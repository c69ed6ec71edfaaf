-- Wireshark dissector of noctule's wire format (docs/spec/wire.md): headers of all packets, frames of packets that are not encrypted.
--
-- Install: copy it to the personal Lua plugins (Help, About, Folders), or run
--     tshark -X lua_script:packaging/wireshark/noctule.lua -r run.pcap
-- UDP port 4242 is noctule's; other ports are found by the form of the first byte and the version in it.

local noctule = Proto("noctule", "noctule")
local VERSION = 0x6e6f6332
-- Lengths of connection ids by their bytes in hexadecimal, as handshakes and NEW_CONNECTION_ID tell them; a protected packet does not (wire.md 2.1).
local id_lengths = {}

local TYPES = { [0] = "INITIATE", "RESPOND", "FINISH", "RETRY" }
local PATTERNS = { [0] = "IK", "XX", "IKpsk2", "XXpsk3" }
local MODES = { [0] = "brtp", "btp", "transparent" }
local KINDS = { [0] = "ordered messages", "unordered messages", "stream" }
local CLASSES = { [0] = "latency", "bulk" }
local LAYERS = { [0] = "wire", "crypto", "link", "flow", "session", "application" }
local CODES = {
    [0x00] = "NoError", [0x01] = "Internal", [0x02] = "FrameEncoding", [0x03] = "UnknownFrame", [0x04] = "VersionMismatch", [0x05] = "Parameter",
    [0x10] = "Handshake", [0x11] = "WrongKey", [0x12] = "NotAuthorised", [0x13] = "Unreachable", [0x14] = "IdleTimeout", [0x15] = "AckOfSkipped",
    [0x16] = "KeyExhausted", [0x17] = "Shutdown", [0x18] = "CircuitBreaker", [0x19] = "Gone", [0x20] = "FlowControl", [0x21] = "UnknownFlow",
    [0x22] = "NoMemory", [0x23] = "SpanInvalid", [0x24] = "Stopped", [0x25] = "Reset", [0x26] = "NoRoute", [0x27] = "HopLimit", [0x28] = "NoRelay",
    [0x29] = "Rerouted", [0x2a] = "Polluted", [0x30] = "MessageTooLarge", [0x31] = "SessionProtocol", [0x32] = "TooMany", [0x33] = "UnknownSession",
}
local FRAMES = {
    [0x00] = "PADDING", [0x02] = "PING", [0x04] = "ACK", [0x06] = "ACK with ECN", [0x08] = "CODED", [0x0a] = "CODED with length", [0x0c] = "FLOW_OPEN",
    [0x0e] = "FLOW_END", [0x10] = "FLOW_REFUSED", [0x12] = "FLOW_RESET", [0x14] = "FLOW_STOP", [0x16] = "FLOW_SKIP", [0x18] = "RANK", [0x1a] = "CREDIT",
    [0x1c] = "NEW_CONNECTION_ID", [0x1e] = "RETIRE_CONNECTION_ID", [0x20] = "PATH_CHALLENGE", [0x22] = "PATH_RESPONSE", [0x24] = "REKEY",
    [0x26] = "FRAGMENT", [0x28] = "CLOSE", [0x2a] = "DATAGRAM",
}

local f = {}
local function field(name, make, title, ...)
    f[name] = make("noctule." .. name, title, ...)
end
field("type", ProtoField.uint8, "Packet type", base.DEC, TYPES, 0x30)
field("version", ProtoField.uint32, "Version", base.HEX)
field("destination_id", ProtoField.bytes, "Destination id")
field("source_id", ProtoField.bytes, "Source id")
field("length", ProtoField.uint16, "Length")
field("pattern", ProtoField.uint8, "Noise pattern", base.DEC, PATTERNS)
field("mac1", ProtoField.bytes, "mac1")
field("token", ProtoField.bytes, "Token")
field("noise", ProtoField.bytes, "Noise message")
field("offered", ProtoField.uint32, "Offered version", base.HEX)
field("generation", ProtoField.uint8, "Key generation", base.DEC, nil, 0x30)
field("connection_id", ProtoField.bytes, "Connection id")
field("number", ProtoField.uint32, "Packet number (low 32 bits)")
field("sealed", ProtoField.bytes, "Sealed frames")
field("tag", ProtoField.bytes, "Tag")
field("frame", ProtoField.uint64, "Frame", base.HEX)
field("flow", ProtoField.uint64, "Flow")
field("base", ProtoField.uint64, "Base")
field("n", ProtoField.uint8, "Packets in the span")
field("index", ProtoField.uint8, "Index")
field("seed", ProtoField.uint16, "Seed")
field("bitmap", ProtoField.bytes, "Bitmap")
field("vector", ProtoField.bytes, "Coefficients")
field("symbol", ProtoField.bytes, "Symbol")
field("path", ProtoField.uint64, "Path")
field("largest", ProtoField.uint64, "Largest")
field("delay", ProtoField.uint64, "Delay in us")
field("ecn", ProtoField.uint64, "ECN count")
field("arrived", ProtoField.string, "Arrived")
field("session", ProtoField.uint64, "Session", base.HEX)
field("flow_index", ProtoField.uint64, "Index in the session")
field("t", ProtoField.uint16, "Largest symbol")
field("mode", ProtoField.uint8, "Mode", base.DEC, MODES)
field("kind", ProtoField.uint8, "Kind", base.DEC, KINDS)
field("class", ProtoField.uint8, "Class", base.DEC, CLASSES)
field("m", ProtoField.uint8, "Batch size")
field("hop_limit", ProtoField.uint8, "Hop limit")
field("value", ProtoField.uint64, "Value")
field("code", ProtoField.uint64, "Code", base.HEX)
field("layer", ProtoField.uint8, "Layer", base.DEC, LAYERS)
field("by_frame", ProtoField.uint64, "Caused by frame", base.HEX)
field("reason", ProtoField.string, "Reason")
field("data", ProtoField.bytes, "Data")
field("ignored", ProtoField.bytes, "Ignored")
noctule.fields = f
local malformed = ProtoExpert.new("noctule.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
noctule.experts = { malformed }

-- A reader walks a buffer and adds what it reads to a tree. A field beyond the end raises an error, which ends the packet as malformed.
local Reader = {}
Reader.__index = Reader

local function reader(buffer, tree)
    return setmetatable({ buffer = buffer, at = 0, tree = tree }, Reader)
end

function Reader:left()
    return self.buffer:len() - self.at
end

function Reader:take(n)
    if n > self:left() then
        error("a field reaches beyond its container", 0)
    end
    local range = n > 0 and self.buffer(self.at, n) or nil
    self.at = self.at + n
    return range
end

function Reader:add(name, n)
    local range = self:take(n)
    if range then
        self.tree:add(f[name], range)
    end
    return range
end

function Reader:uint(name, n)
    return self:add(name, n):uint()
end

-- RFC 9000, section 16. The value is a number where it is below 2^53, which all lengths and counts are.
function Reader:varint(name)
    local first = self.buffer(self.at, self:left() > 0 and 1 or error("a field is missing", 0)):uint()
    local n = 2 ^ math.floor(first / 64)
    local range = self:take(n)
    local value = UInt64(0, 0)
    for i = 0, n - 1 do
        local byte = range(i, 1):uint()
        value = value * 256 + (i == 0 and byte % 64 or byte)
    end
    if name then
        self.tree:add(f[name], range, value)
    end
    return value:tonumber()
end

function Reader:prefixed(name)
    local n = self:varint()
    return self:add(name, n)
end

local function id_key(range)
    return tostring(range:bytes()):lower()
end

local function note_id(range)
    id_lengths[id_key(range)] = range:len()
end

local function id_length(buffer)
    for n = 4, 8 do
        if buffer:len() > n and id_lengths[id_key(buffer(1, n))] == n then
            return n
        end
    end
    return 4
end

local function coded(r, with_length)
    r:varint("flow")
    r:varint("base")
    local form = r:take(1):uint()
    local n = form % 64 + 1
    r.tree:add(f.n, r.buffer(r.at - 1, 1), n)
    form = math.floor(form / 64)
    if form == 0 then
        r:add("index", 1)
    elseif form == 1 then
        r:add("seed", 2)
    elseif form == 2 then
        r:add("bitmap", math.ceil(n / 8))
        r:add("seed", 2)
    else
        r:add("vector", n)
    end
    if with_length then
        r:prefixed("symbol")
    else
        r:add("symbol", r:left())
    end
end

local function ack(r, with_ecn)
    r:varint("path")
    local down = r:varint("largest")
    r:varint("delay")
    if with_ecn then
        for _ = 1, 3 do
            r:varint("ecn")
        end
    end
    local from, ranges = r.at, {}
    local function step(arrived, count)
        if count > 0 then
            local last = ranges[#ranges]
            if arrived and last and last[2] == down + 1 then
                last[2] = down - count + 1
            elseif arrived then
                table.insert(ranges, { down, down - count + 1 })
            end
            down = down - count
        end
    end
    for _ = 1, r:take(1):uint() do
        local head = r:varint()
        local count = math.floor(head / 2)
        if head % 2 == 0 then
            for _ = 1, count do
                step(true, r:varint())
                step(false, r:varint())
            end
        else
            local bits = r:take(math.ceil(count / 8))
            for j = 0, count - 1 do
                local byte = bits(math.floor(j / 8), 1):uint()
                step(math.floor(byte / 2 ^ (j % 8)) % 2 == 1, 1)
            end
        end
    end
    local words = {}
    for _, range in ipairs(ranges) do
        table.insert(words, string.format("%.0f-%.0f", range[1], range[2]))
    end
    r.tree:add(f.arrived, r.buffer(from, r.at - from), table.concat(words, " "))
end

local function flow_open(r)
    local n = r:varint()
    local o = reader(r.buffer(r.at, n):tvb(), r.tree)
    r:take(n)
    o:add("session", 8)
    o:varint("flow_index")
    o:varint("flow")
    o:add("t", 2)
    for _, name in ipairs({ "mode", "kind", "class", "m", "hop_limit" }) do
        o:add(name, 1)
    end
    o:varint("value") -- no-retransmit
    o:varint("value") -- tag
    if o:left() > 0 then
        o:add("data", o:left()) -- flags and what they say follows
    end
end

local function varints(...)
    local names = { ... }
    return function(r)
        for _, name in ipairs(names) do
            r:varint(name)
        end
    end
end

local BODIES = {
    [0x02] = varints(),
    [0x04] = function(r) ack(r, false) end,
    [0x06] = function(r) ack(r, true) end,
    [0x08] = function(r) coded(r, false) end,
    [0x0a] = function(r) coded(r, true) end,
    [0x0c] = flow_open,
    [0x0e] = varints("flow", "value"),
    [0x10] = varints("flow", "base", "code"),
    [0x12] = varints("flow", "code"),
    [0x14] = varints("flow", "code"),
    [0x16] = varints("flow", "value"),
    [0x18] = function(r)
        r:varint("flow")
        r:varint("base")
        local n = r:uint("n", 1)
        r.tree:add(f.value, r:take(1), UInt64(r.buffer(r.at - 1, 1):uint(), 0))
        r:add("bitmap", math.ceil(n / 8))
    end,
    [0x1a] = varints("flow", "value", "value"),
    [0x1c] = function(r)
        r:varint("path")
        r:varint("value")
        local id = r:prefixed("connection_id")
        if id then
            note_id(id)
        end
    end,
    [0x1e] = varints("value"),
    [0x20] = function(r) r:add("data", 8) end,
    [0x22] = function(r) r:add("data", 8) end,
    [0x24] = function(r)
        r:varint("value")
        r:add("index", 1)
        r:prefixed("noise")
    end,
    [0x26] = function(r)
        r:varint("value")
        r:add("index", 1)
        r:prefixed("data")
    end,
    [0x28] = function(r)
        r:varint("code")
        r:add("layer", 1)
        r:varint("value")
        r:varint("by_frame")
        r:prefixed("reason")
    end,
    [0x2a] = function(r)
        r:varint("flow")
        r:varint("value")
        r:add("data", r:left())
    end,
}

local function frames(payload, tree, names)
    local r = reader(payload, tree)
    while r:left() > 0 do
        local from = r.at
        local kind = r:varint()
        local name = FRAMES[kind] or string.format("frame %#x", kind)
        local branch = tree:add(noctule, payload(from), name)
        r.tree = branch
        branch:add(f.frame, payload(from, r.at - from), UInt64(kind, 0))
        if kind == 0 then
            while r:left() > 0 and payload(r.at, 1):uint() == 0 do
                r:take(1)
            end
        elseif BODIES[kind] then
            BODIES[kind](r)
        elseif kind % 2 == 1 then
            r:prefixed("data")
        else
            error("unknown mandatory frame", 0)
        end
        branch:set_len(r.at - from)
        table.insert(names, name)
    end
end

local function protected(buffer, tree, names)
    local r = reader(buffer, tree)
    r:add("generation", 1)
    r:add("connection_id", id_length(buffer))
    r:add("number", 4)
    local sealed = r:left() - 16
    if sealed < 1 then
        error("a protected packet without payload", 0)
    end
    -- A packet that is not encrypted ends in four zero bytes (wire.md 6.5).
    if buffer(buffer:len() - 4, 4):uint() == 0 then
        frames(r:take(sealed):tvb(), tree, names)
    else
        r:add("sealed", sealed)
        table.insert(names, "sealed")
    end
    r:add("tag", 16)
end

-- One handshake packet; returns how many bytes it took.
local function handshake(buffer, tree, names)
    local r = reader(buffer, tree)
    local kind = math.floor(r:uint("type", 1) / 16) % 4
    local version = r:uint("version", 4)
    local sides = { "destination_id", "source_id" }
    for i, name in ipairs(sides) do
        local id = r:add(name, r:take(1):uint())
        if i == 2 and id then
            note_id(id)
        end
    end
    if version ~= 0 and version ~= VERSION then
        table.insert(names, "handshake of another version")
        return buffer:len()
    end
    local stop = r:uint("length", 2)
    stop = stop + r.at
    if stop > buffer:len() then
        error("a handshake packet reaches beyond its datagram", 0)
    end
    if version == 0 then
        table.insert(names, "version list")
        while r.at < stop do
            r:add("offered", 4)
        end
        return stop
    end
    table.insert(names, TYPES[kind])
    if kind == 0 then
        r:add("pattern", 1)
        r:add("mac1", 16)
    end
    if kind == 0 or kind == 3 then
        r:add("token", r:take(2):uint())
    end
    if r.at > stop then
        error("a field reaches beyond its packet", 0)
    end
    if r.at < stop then
        r:add("noise", stop - r.at)
    end
    return stop
end

local function dissect(buffer, tree, names)
    local form, from = math.floor(buffer(0, 1):uint() / 64), 0
    if form == 2 then
        from = handshake(buffer, tree, names)
    end
    if from < buffer:len() then
        local rest = buffer(from):tvb()
        if math.floor(rest(0, 1):uint() / 64) == 1 then
            protected(rest, tree, names)
        else
            tree:add(f.ignored, rest())
        end
    end
end

function noctule.dissector(buffer, pinfo, root)
    if buffer:len() == 0 then
        return 0
    end
    pinfo.cols.protocol = "noctule"
    local tree, names = root:add(noctule, buffer()), {}
    local good, fault = pcall(dissect, buffer, tree, names)
    if not good then
        tree:add_proto_expert_info(malformed, tostring(fault))
        table.insert(names, "malformed: " .. tostring(fault))
    end
    pinfo.cols.info = table.concat(names, ", ")
    return buffer:len()
end

DissectorTable.get("udp.port"):add(4242, noctule)

-- A handshake packet of this version, or a version list, says on which ports it is spoken.
noctule:register_heuristic("udp", function(buffer, pinfo, root)
    if buffer:len() < 12 or math.floor(buffer(0, 1):uint() / 64) ~= 2 or buffer(1, 4):uint() ~= VERSION then
        return false
    end
    noctule.dissector(buffer, pinfo, root)
    pinfo.conversation = noctule
    return true
end)
