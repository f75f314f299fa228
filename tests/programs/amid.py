"""One in the middle, on the host that is called: does something to each datagram that the kernel queues for it
(iptables -j NFQUEUE), and lets it go on. Says in a line what. Usage: amid.py QUEUE"""
import os
import random
import socket
import struct
import sys

KINDS = ["flips a bit", "replays", "truncates", "splices"]
KEPT = 100
# linux/netfilter/nfnetlink.h and nfnetlink_queue.h
NETLINK_NETFILTER = 12
PACKET, VERDICT, CONFIG = (3 << 8 | word for word in range(3))
CFG_CMD, CFG_PARAMS = 1, 2
PACKET_HDR, VERDICT_HDR, PAYLOAD = 1, 2, 10
BIND, COPY_PACKET, ACCEPT = 1, 2, 1


def emit(kind, queue, *attributes):
    body = struct.pack("!BBH", 0, 0, queue)
    for name, value in attributes:
        body += struct.pack("=HH", 4 + len(value), name) + value + bytes(-len(value) % 4)
    return struct.pack("=IHHII", 16 + len(body), kind, 1, 0, 0) + body


def parse(message):
    """The attributes of each packet."""
    while len(message) >= 16:
        length, kind = struct.unpack_from("=IH", message)
        body, found = message[20:length], {}
        while len(body) >= 4:
            size, name = struct.unpack_from("=HH", body)
            found[name & 0x3FFF] = body[4:size]
            body = body[size + -size % 4 :]
        if kind == PACKET:
            yield found
        message = message[length + -length % 4 :]


def do(kind, data, earlier, others):
    """What goes on instead of a datagram, if there is what it takes."""
    if kind == "flips a bit":
        at = random.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
    if kind == "replays":
        return random.choice(earlier) if earlier else None
    if kind == "truncates":
        return data[: random.randrange(1, len(data))]
    half = len(data) // 2
    return data[:half] + random.choice(others)[half:] if others else None


def change(packet, seen):
    """The packet, with another datagram in it; what was done to it."""
    head = (packet[0] & 15) * 4
    data = packet[head + 8 :]
    flow = packet[12:20] + packet[head : head + 4]
    others = [one for other, kept in seen.items() if other != flow for one in kept]
    kind = random.choice(KINDS)
    changed = do(kind, data, seen.get(flow), others)
    seen.setdefault(flow, []).append(data)
    del seen[flow][:-KEPT]
    if changed is None:
        return packet, None
    # Without a checksum, which no datagram needs over IPv4; the header's has been looked at already.
    ip = packet[:2] + struct.pack("!H", head + 8 + len(changed)) + packet[4:head]
    return ip + packet[head : head + 4] + struct.pack("!HH", 8 + len(changed), 0) + changed, kind


def main():
    queue, seen = int(sys.argv[1]), {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as kernel:
        kernel.bind((0, 0))
        kernel.send(emit(CONFIG, queue, (CFG_CMD, struct.pack("!BBH", BIND, 0, 0))))
        kernel.send(emit(CONFIG, queue, (CFG_PARAMS, struct.pack("!IB", 0xFFFF, COPY_PACKET))))
        while True:
            try:
                message = kernel.recv(1 << 20)
            except OSError:
                # The kernel had no room: what was queued then is lost, as on a network.
                continue
            for found in parse(message):
                packet, kind = change(found[PAYLOAD], seen)
                verdict = struct.pack("!I", ACCEPT) + found[PACKET_HDR][:4]
                kernel.send(emit(VERDICT, queue, (VERDICT_HDR, verdict), (PAYLOAD, packet)))
                if kind:
                    # Other threads, and another process, write to the same file.
                    os.write(1, f"{kind}\n".encode())


main()
