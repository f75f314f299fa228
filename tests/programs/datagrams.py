"""Datagrams over a lab's links: an echo, and who counts what comes back of so many.

Usage: datagrams.py echo PORT SECONDS | datagrams.py count ADDRESS PORT COUNT BYTES GAP_S
The latter prints how many were sent, came back, came twice, and came after a later one.
"""

import socket
import struct
import sys
import time


def echo(port, seconds):
    end = time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("0.0.0.0", port))
        own.settimeout(0.1)
        print("ready", flush=True)
        while time.monotonic() < end:
            try:
                data, peer = own.recvfrom(65536)
            except TimeoutError:
                continue
            own.sendto(data[:4], peer)


def count(address, port, number, size, gap_s):
    seen, twice, overtaken, greatest = set(), 0, 0, -1

    def take(own):
        nonlocal twice, overtaken, greatest
        try:
            (at,) = struct.unpack("!I", own.recv(64)[:4])
        except (TimeoutError, BlockingIOError, ConnectionError):
            return False
        twice += at in seen
        overtaken += at not in seen and at < greatest
        seen.add(at)
        greatest = max(greatest, at)
        return True

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: nothing is fragmented
        own.connect((address, port))
        next_at = time.monotonic()
        for at in range(number):
            own.send(struct.pack("!I", at) + bytes(size - 4))
            next_at += gap_s
            while (left := next_at - time.monotonic()) > 0:
                own.settimeout(left)
                take(own)
        # The last ones may be late, the more so on a busy machine; more than all may come, too.
        own.settimeout(1)
        while take(own):
            own.settimeout(1 if len(seen) < number else 0.5)
    print(f"{number} sent, {len(seen)} came, {twice} twice, {overtaken} overtaken")


if __name__ == "__main__":
    if sys.argv[1] == "echo":
        echo(int(sys.argv[2]), float(sys.argv[3]))
    else:
        count(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
