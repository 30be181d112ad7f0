-- Shows uvia's frames in Wireshark and tshark, over Ethernet and over UDP. The layouts are those of via/WIRE.md.
--
--   tshark -X lua_script:tools/wireshark/uvia.lua -r capture.pcap
--
-- or put this file into the folder "Personal Lua Plugins" (Help, About Wireshark, Folders). A frame that the engine
-- would drop is marked as malformed, with the reason.

local ETHERTYPE = 0x88b5
local VERSION = 1
-- Bytes that stand before the version: the Ethernet header, or its likeness in a datagram.
local ETHERNET = 14
-- The part that all frames have.
local FIXED = 48
local MAX_CONTROL = 260
local MAX_TEXT = 64
local MAX_TRANSFER = 2 ^ 30
-- Bytes of all that may stand before a payload, without the Ethernet header and the check.
local LONGEST_HEADER = FIXED + 32 - ETHERNET

local KINDS = {
    [1] = "Data", [2] = "Ack", [16] = "Request", [17] = "Accept", [18] = "Reject", [19] = "NoMatch",
    [20] = "Cancel", [21] = "Close", [22] = "Closed", [23] = "Reset", [24] = "Query", [25] = "Answer", [26] = "Peer",
    [27] = "Probe", [28] = "Probed",
}
local LEVELS = { [0] = "Unreliable", [1] = "Reliable Delivery", [2] = "Reliable Reception" }
local REASONS = {
    [0] = "Disconnected", [1] = "ReceiveQueueEmpty", [2] = "Length", [3] = "RdmaProtection", [4] = "Protocol",
    [5] = "Silent", [6] = "MemoryGone",
}
local LAST, IMMEDIATE, WRITE, SACK, CRC, DRY, NOW, READ, ANSWER, NOT_READY = 1, 2, 4, 8, 16, 32, 64, 128, 256, 512
local PART, MORE = 1024, 2048
local FLAGS = {
    { LAST, "last", "Last frame of the message" }, { IMMEDIATE, "immediate", "Immediate data" },
    { WRITE, "write", "RDMA write" }, { SACK, "sack", "Selective acknowledgement" },
    { CRC, "crc", "End-to-end check" }, { DRY, "dry", "Nothing more to send" },
    { NOW, "now", "Acknowledge at once" }, { READ, "read", "Asks for an RDMA read" },
    { ANSWER, "answer", "Answer to an RDMA read" }, { NOT_READY, "not_ready", "No receive is posted" },
    { PART, "part", "Part of a frame" }, { MORE, "more", "More of the frame follows" },
}
local KNOWN = 0xfff

local uvia = Proto("uvia", "VI Architecture (uvia)")
local f = uvia.fields
f.to = ProtoField.ether("uvia.to", "To")
f.from = ProtoField.ether("uvia.from", "From")
f.type = ProtoField.uint16("uvia.type", "Type", base.HEX)
f.version = ProtoField.uint8("uvia.version", "Version")
f.kind = ProtoField.uint8("uvia.kind", "Kind", base.DEC, KINDS)
f.flags = ProtoField.uint16("uvia.flags", "Flags", base.HEX)
for _, flag in ipairs(FLAGS) do
    f["flag_" .. flag[2]] = ProtoField.bool("uvia.flags." .. flag[2], flag[3], 16, nil, flag[1])
end
f.slot = ProtoField.uint16("uvia.slot", "Destination's slot")
f.payload_length = ProtoField.uint16("uvia.payload_length", "Payload bytes")
f.window = ProtoField.uint16("uvia.window", "Window")
f.identity = ProtoField.uint64("uvia.identity", "Destination's identity", base.HEX)
f.sequence = ProtoField.uint32("uvia.sequence", "Sequence")
f.ack = ProtoField.uint32("uvia.ack", "Acknowledgement")
f.message = ProtoField.uint32("uvia.message", "Message")
f.offset = ProtoField.uint32("uvia.offset", "Offset in the message")
f.selective = ProtoField.uint64("uvia.selective", "Arrived beyond", base.HEX)
f.immediate = ProtoField.uint32("uvia.immediate", "Immediate data", base.HEX)
f.address = ProtoField.uint64("uvia.remote.address", "Remote address", base.HEX)
f.handle = ProtoField.uint32("uvia.remote.handle", "Remote memory handle", base.HEX)
f.total = ProtoField.uint32("uvia.remote.total", "Bytes of the transfer")
f.crc = ProtoField.uint32("uvia.crc", "CRC32C", base.HEX)
f.crc_status = ProtoField.string("uvia.crc.status", "CRC32C is")
f.payload = ProtoField.bytes("uvia.payload", "Payload")
f.length = ProtoField.uint16("uvia.length", "Length")
f.sender = ProtoField.uint64("uvia.sender", "Sender's identity", base.HEX)
f.host = ProtoField.ether("uvia.host", "Sender's address")
f.sender_slot = ProtoField.uint16("uvia.sender_slot", "Sender's slot")
f.level = ProtoField.uint8("uvia.level", "Reliability level", base.DEC, LEVELS)
f.rights = ProtoField.uint8("uvia.rights", "Rights", base.HEX)
f.may_write = ProtoField.bool("uvia.rights.write", "Peer may write", 8, nil, 1)
f.may_read = ProtoField.bool("uvia.rights.read", "Peer may read", 8, nil, 2)
f.wants_crc = ProtoField.bool("uvia.rights.crc", "Wants the end-to-end check", 8, nil, 4)
f.longest = ProtoField.uint32("uvia.longest_transfer", "Longest transfer")
f.qos = ProtoField.uint8("uvia.qos", "Quality of service")
f.first = ProtoField.uint32("uvia.first_sequence", "First sequence")
f.mtu = ProtoField.uint16("uvia.mtu", "MTU")
f.local_discriminator = ProtoField.bytes("uvia.discriminator.local", "Sender's discriminator")
f.remote_discriminator = ProtoField.bytes("uvia.discriminator.remote", "Destination's discriminator")
f.private_data = ProtoField.bytes("uvia.private_data", "Private data")
f.reason = ProtoField.uint8("uvia.reason", "Reason", base.DEC, REASONS)
f.number = ProtoField.uint32("uvia.number", "Number", base.HEX)
f.name = ProtoField.string("uvia.name", "Name", base.UNICODE)

local e_malformed = ProtoExpert.new("uvia.malformed", "Malformed frame", expert.group.MALFORMED, expert.severity.ERROR)
local e_crc = ProtoExpert.new("uvia.crc.bad", "Wrong CRC32C", expert.group.CHECKSUM, expert.severity.ERROR)
uvia.experts = { e_malformed, e_crc }

local eth_src = Field.new("eth.src")

-- CRC32C (Castagnoli), reflected.
local crc_table = {}
for n = 0, 255 do
    local crc = n
    for _ = 1, 8 do
        local low = bit.band(crc, 1)
        crc = bit.rshift(crc, 1)
        if low == 1 then crc = bit.bxor(crc, 0x82f63b78) end
    end
    crc_table[n] = crc
end

-- Over bytes `from` (the first is 1) to `to` of a string, with four at `hole` taken as 0.
local function crc32c(bytes, from, to, hole)
    local crc = -1
    for at = from, to do
        local byte = bytes:byte(at)
        if at >= hole and at < hole + 4 then byte = 0 end
        crc = bit.bxor(bit.rshift(crc, 8), crc_table[bit.band(bit.bxor(crc, byte), 0xff)])
    end
    -- As the number without a sign that it stands for.
    return bit.bnot(crc) % 2 ^ 32
end

local function has(flags, flag)
    return bit.band(flags, flag) ~= 0
end

-- What Rust takes as UTF-8, and Unicode says: no surrogates, nothing longer than it needs to be.
local function is_utf8(text)
    local at, len = 1, #text
    while at <= len do
        local lead = text:byte(at)
        local more, low, high = 0, 0x80, 0xbf
        if lead < 0x80 then more = 0
        elseif lead >= 0xc2 and lead <= 0xdf then more = 1
        elseif lead >= 0xe0 and lead <= 0xef then
            more = 2
            if lead == 0xe0 then low = 0xa0 elseif lead == 0xed then high = 0x9f end
        elseif lead >= 0xf0 and lead <= 0xf4 then
            more = 3
            if lead == 0xf0 then low = 0x90 elseif lead == 0xf4 then high = 0x8f end
        else return false end
        for n = 1, more do
            local byte = text:byte(at + n)
            if not byte or byte < low or byte > high then return false end
            low, high = 0x80, 0xbf
        end
        at = at + 1 + more
    end
    return true
end

-- A frame under way through here: `tvb` begins with its version, so that an offset of WIRE.md is looked for 14 before.
local Frame = {}
Frame.__index = Frame

function Frame:range(offset, len)
    return self.tvb(offset - ETHERNET, len)
end

function Frame:wrong(why)
    if not self.is_wrong then
        self.is_wrong = true
        self.tree:add_proto_expert_info(e_malformed, why)
        self.info = self.info .. " [" .. why .. "]"
    end
end

function Frame:check(ok, why)
    if not ok then self:wrong(why) end
    return ok
end

-- Shows the check and says what it is. `to` is the offset behind the last byte under it.
function Frame:checksum(offset, to)
    local found = self:range(offset, 4):le_uint()
    local made = crc32c(self:range(ETHERNET, to - ETHERNET):raw(), 1, to - ETHERNET, offset - ETHERNET + 1)
    local item = self.tree:add_le(f.crc, self:range(offset, 4))
    local good = found == made
    self.tree:add(f.crc_status, self:range(offset, 4), good and "good" or "bad"):set_generated()
    if not good then item:add_proto_expert_info(e_crc, string.format("Wrong CRC32C, it should be 0x%08x", made)) end
    return good
end

local function extension_bytes(flags)
    return (has(flags, SACK) and 8 or 0) + (has(flags, IMMEDIATE) and 4 or 0) + (has(flags, WRITE) and 16 or 0)
        + (has(flags, READ) and 16 or 0) + (has(flags, CRC) and 4 or 0)
end

function Frame:connected(kind)
    local tree = self.tree
    local flags = self:range(16, 2):le_uint()
    local item = tree:add_le(f.flags, self:range(16, 2))
    local names = {}
    for _, flag in ipairs(FLAGS) do
        item:add_le(f["flag_" .. flag[2]], self:range(16, 2))
        if has(flags, flag[1]) then names[#names + 1] = flag[2] end
    end
    local payload = self:range(20, 2):le_uint()
    local message, offset = self:range(40, 4):le_uint(), self:range(44, 4):le_uint()
    tree:add_le(f.slot, self:range(18, 2))
    tree:add_le(f.payload_length, self:range(20, 2))
    tree:add_le(f.window, self:range(22, 2))
    tree:add_le(f.identity, self:range(24, 8))
    tree:add_le(f.sequence, self:range(32, 4))
    tree:add_le(f.ack, self:range(36, 4))
    tree:add_le(f.message, self:range(40, 4))
    tree:add_le(f.offset, self:range(44, 4))
    self.info = string.format("%s seq=%u ack=%u", self.info, self:range(32, 4):le_uint(), self:range(36, 4):le_uint())
    if kind == 1 then self.info = string.format("%s msg=%u off=%u len=%u", self.info, message, offset, payload) end
    if #names > 0 then self.info = self.info .. " " .. table.concat(names, ",") end

    if not self:check(bit.band(flags, bit.bnot(KNOWN)) == 0, "unknown flags") then return FIXED end
    local extensions = extension_bytes(flags)
    if not self:check(self.len >= FIXED + extensions + payload, "shorter than its lengths say") then return self.len end
    if kind == 1 then
        local last, read, answer = has(flags, LAST), has(flags, READ), has(flags, ANSWER)
        if read and answer then
            self:wrong("a request for a read and an answer at once")
        elseif read then
            self:check(last and not has(flags, WRITE + IMMEDIATE) and payload == 0, "a request for a read with more in it")
        elseif answer then
            self:check(not has(flags, WRITE + IMMEDIATE), "an answer to a read with more in it")
        end
        self:check(not has(flags, NOT_READY), "not ready, in a part of a message")
        if has(flags, PART) then
            self:check(not read and payload ~= 0, "a part of what has none")
            self:check(not (last and has(flags, MORE)), "more of a frame that ends a message")
        else
            self:check(not has(flags, MORE), "more of what is no part")
        end
        self:check(last or not has(flags, IMMEDIATE), "immediate data before the end")
        self:check(payload ~= 0 or (last and offset == 0), "no payload")
        self:check(offset + payload < 2 ^ 32, "beyond any message")
    else
        local only = not has(flags, LAST + IMMEDIATE + WRITE + READ + ANSWER + DRY + PART + MORE)
        self:check(only and payload == 0 and message == 0 and offset == 0, "an acknowledgement with more in it")
    end

    local at = FIXED
    if has(flags, SACK) then
        tree:add_le(f.selective, self:range(at, 8))
        at = at + 8
    end
    if has(flags, IMMEDIATE) then
        tree:add_le(f.immediate, self:range(at, 4))
        at = at + 4
    end
    -- Both at once are wrong, and take the room of both.
    for _, flag in ipairs({ WRITE, READ }) do
        if has(flags, flag) then
            tree:add_le(f.address, self:range(at, 8))
            tree:add_le(f.handle, self:range(at + 8, 4))
            tree:add_le(f.total, self:range(at + 12, 4))
            at = at + 16
        end
    end
    if has(flags, CRC) then
        self:checksum(at, at + 4 + payload)
        at = at + 4
    end
    if payload > 0 then tree:add(f.payload, self:range(at, payload)) end
    return at + payload
end

-- Bytes with their count and three zeros before them, which end with the frame.
function Frame:counted(field, what, len)
    if not self:check(len >= FIXED + 4, "shorter than its kind") then return nil end
    local count = self:range(FIXED, 1):uint()
    local right = self:check(self:range(FIXED + 1, 3):uint() == 0, "something where zeros should be")
        and self:check(FIXED + 4 + count == len and count <= MAX_TEXT, what .. " of another length")
    if not right then return nil end
    if count > 0 and field == f.name then
        self.tree:add_packet_field(field, self:range(FIXED + 4, count), ENC_UTF_8 + ENC_STRING)
    elseif count > 0 then
        self.tree:add(field, self:range(FIXED + 4, count))
    end
    return count > 0 and self:range(FIXED + 4, count):raw() or ""
end

function Frame:offer(len)
    local tree = self.tree
    if not self:check(len >= FIXED + 20, "shorter than its kind") then return end
    local rights, longest = self:range(51, 1):uint(), self:range(52, 4):le_uint()
    local counts = { self:range(64, 1):uint(), self:range(65, 1):uint(), self:range(66, 1):uint() }
    tree:add_le(f.sender_slot, self:range(48, 2))
    tree:add(f.level, self:range(50, 1))
    local item = tree:add(f.rights, self:range(51, 1))
    for _, field in ipairs({ f.may_write, f.may_read, f.wants_crc }) do item:add(field, self:range(51, 1)) end
    tree:add_le(f.longest, self:range(52, 4))
    tree:add_le(f.first, self:range(56, 4))
    tree:add_le(f.window, self:range(60, 2))
    tree:add_le(f.mtu, self:range(62, 2))
    tree:add(f.qos, self:range(67, 1))
    self:check(LEVELS[self:range(50, 1):uint()], "no reliability level")
    self:check(bit.band(rights, 0xf8) == 0, "unknown rights")
    self:check(longest <= MAX_TRANSFER, "too long a longest transfer")
    self:check(self:range(60, 2):le_uint() > 0, "no window")
    self:check(self:range(62, 2):le_uint() > LONGEST_HEADER, "an MTU that no header fits into")
    local fits = counts[1] + counts[2] + counts[3] == len - FIXED - 20
    if not self:check(fits and math.max(counts[1], counts[2], counts[3]) <= MAX_TEXT, "counts that do not fit") then
        return
    end
    local at = FIXED + 20
    for n, field in ipairs({ f.local_discriminator, f.remote_discriminator, f.private_data }) do
        if counts[n] > 0 then tree:add(field, self:range(at, counts[n])) end
        at = at + counts[n]
    end
end

function Frame:management(kind)
    local tree = self.tree
    local len = ETHERNET + self:range(16, 2):le_uint()
    tree:add_le(f.length, self:range(16, 2))
    tree:add_le(f.slot, self:range(18, 2))
    tree:add_le(f.identity, self:range(24, 8))
    tree:add_le(f.sender, self:range(32, 8))
    tree:add(f.host, self:range(40, 6))
    local sound = self:check(len >= FIXED and len <= self.len and len <= MAX_CONTROL, "its length cannot be")
    if not sound then return self.len end
    if not self:checksum(20, len) then self:wrong("wrong CRC32C") end
    self:check(self:range(46, 2):uint() == 0, "something where zeros should be")
    self:check(not self.from or self.from == self:range(40, 6):raw(), "from another host than it says")
    self:check(not has(self:range(40, 1):uint(), 1), "from no single host")

    if kind == 16 or kind == 17 or kind == 26 then
        self:offer(len)
    elseif kind == 18 then
        self:counted(f.private_data, "private data", len)
    elseif kind == 21 then
        if self:check(len == FIXED + 8, "not as long as its kind") then
            tree:add(f.reason, self:range(48, 1))
            tree:add_le(f.ack, self:range(52, 4))
            local reason = REASONS[self:range(48, 1):uint()]
            self:check(reason, "unknown reason")
            self:check(self:range(49, 3):uint() == 0, "something where zeros should be")
            self.info = self.info .. " " .. (reason or "?")
        end
    elseif kind == 24 or kind == 25 then
        local name = self:counted(f.name, "a name", len)
        if name then
            self:check(#name > 0 and is_utf8(name), "no name")
            self.info = self.info .. " " .. name
        end
    elseif kind == 27 or kind == 28 then
        if self:check(len == FIXED + 8, "not as long as its kind") then
            local mtu = self:range(52, 2):le_uint()
            tree:add_le(f.number, self:range(48, 4))
            tree:add_le(f.mtu, self:range(52, 2))
            self:check(self:range(54, 2):uint() == 0, "something where zeros should be")
            self:check(mtu > LONGEST_HEADER, "an MTU that no header fits into")
            if kind == 27 then
                self:check(self.len >= ETHERNET + mtu, "shorter than it says")
                len = math.max(len, ETHERNET + mtu)
            end
            self.info = string.format("%s %u", self.info, mtu)
        end
    elseif KINDS[kind] then
        self:check(len == FIXED, "longer than its kind")
    end
    return len
end

-- `tvb` begins with the version. `from` are the bytes of the sender's address before it.
local function dissect(tvb, pinfo, tree, from)
    local len = tvb:len() + ETHERNET
    local kind = tvb:len() > 1 and tvb(1, 1):uint()
    local frame = setmetatable({ tvb = tvb, tree = tree, len = len, from = from }, Frame)
    frame.info = kind and KINDS[kind] or "unknown kind"
    pinfo.cols.protocol = "uvia"
    local used = len
    if tvb:len() > 0 then tree:add(f.version, tvb(0, 1)) end
    if kind then tree:add(f.kind, tvb(1, 1)) end
    if frame:check(len >= FIXED, "shorter than any frame") and frame:check(tvb(0, 1):uint() == VERSION, "another version")
    then
        if kind == 1 or kind == 2 then
            used = frame:connected(kind)
        else
            used = frame:management(kind)
            frame:check(KINDS[kind], "unknown kind")
        end
    end
    pinfo.cols.info = frame.info
    return used - ETHERNET
end

function uvia.dissector(tvb, pinfo, root)
    local sources = { eth_src() }
    local from = #sources > 0 and sources[#sources].range:raw() or nil
    return dissect(tvb, pinfo, root:add(uvia, tvb()), from)
end

-- In a datagram a frame has its first 14 bytes with it.
local datagram = Proto("uvia_udp", "VI Architecture (uvia) over UDP")
datagram.prefs.port = Pref.uint("UDP port", 34997, "The port that the hosts talk to each other on")


function datagram.dissector(tvb, pinfo, root)
    local tree = root:add(uvia, tvb())
    if tvb:len() < ETHERNET then
        pinfo.cols.protocol = "uvia"
        pinfo.cols.info = "shorter than any frame"
        tree:add_proto_expert_info(e_malformed, "shorter than any frame")
        return tvb:len()
    end
    tree:add(f.to, tvb(0, 6))
    tree:add(f.from, tvb(6, 6))
    tree:add(f.type, tvb(12, 2))
    if tvb(12, 2):uint() ~= ETHERTYPE then
        tree:add_proto_expert_info(e_malformed, "another type")
        return tvb:len()
    end
    if tvb:len() == ETHERNET then
        tree:add_proto_expert_info(e_malformed, "shorter than any frame")
        return tvb:len()
    end
    return ETHERNET + dissect(tvb(ETHERNET):tvb(), pinfo, tree, tvb(6, 6):raw())
end

DissectorTable.get("ethertype"):add(ETHERTYPE, uvia)
local ports = DissectorTable.get("udp.port")
local port = datagram.prefs.port
ports:add(port, datagram)
function datagram.prefs_changed()
    if port ~= datagram.prefs.port then
        ports:remove(port, datagram)
        port = datagram.prefs.port
        ports:add(port, datagram)
    end
end
