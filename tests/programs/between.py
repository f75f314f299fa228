"""The man in the middle, on the host that is called: passes on connections that the kernel redirects here, and does
something to the bytes of each, once, after some of them. Says in a line what. Usage: between.py PORT"""
import os
import random
import socket
import struct
import sys
import threading

KINDS = ["flips a bit", "repeats", "truncates and closes", "splices"]
SO_ORIGINAL_DST = 80
count = 0
# The last bytes of each connection.
heard = {}


def do(kind, data, connection):
    """What goes on of some bytes, and whether the connection does; none if that takes bytes of another."""
    if kind == "flips a bit":
        # Not a record's length: who waits for the rest of it cannot be told from one to whom nobody speaks.
        at = random.randrange(min(5, len(data) - 1), len(data))
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :], True
    if kind == "repeats":
        return data + data, True
    if kind == "splices":
        half = len(data) // 2
        others = [bytes for other, bytes in list(heard.items()) if other != connection and len(bytes) >= len(data) > 10]
        return (data[:half] + others[0][half : len(data)], True) if others else None
    return data[: len(data) // 2], False


def close(*ends):
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def carry(source, target, kind, after, connection):
    gone = 0
    try:
        while data := source.recv(65536):
            goes_on = True
            gone += len(data)
            if kind and gone > after and (done := do(kind, data, connection)):
                data, goes_on = done
                os.write(1, f"{kind}\n".encode())
                kind = None
            heard[connection] = data
            target.sendall(data)
            if not goes_on:
                break
    except OSError:
        pass
    close(source, target)


def main():
    global count
    listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
    while True:
        near, _ = listener.accept()
        try:
            port, address = struct.unpack("!2xH4s8x", near.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16))
            far = socket.create_connection((socket.inet_ntoa(address), port))
        except OSError:
            near.close()
            continue
        # Handshakes too: the first bytes of some connections.
        after = random.choice([random.randrange(2000), random.randrange(1000000)])
        kinds = [KINDS[count % len(KINDS)], None]
        if count // len(KINDS) % 2:
            kinds.reverse()
        count += 1
        for source, target, kind in [(near, far, kinds[0]), (far, near, kinds[1])]:
            threading.Thread(target=carry, args=(source, target, kind, after, count), daemon=True).start()


main()
