"""The man in the middle, on the host that is called: passes on connections that the kernel redirects here, and does
something to the bytes of each, once, after some of them. Says in a line what. Usage: between.py PORT"""
import random
import socket
import struct
import sys
import threading

KINDS = ["flips a bit", "repeats", "truncates and closes"]
SO_ORIGINAL_DST = 80
count = 0


def do(kind, data):
    """What goes on of some bytes, and whether the connection does."""
    if kind == "flips a bit":
        # Not a record's length: who waits for the rest of it cannot be told from one to whom nobody speaks.
        at = random.randrange(min(5, len(data) - 1), len(data))
        return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :], True
    if kind == "repeats":
        return data + data, True
    return data[: len(data) // 2], False


def close(*ends):
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def carry(source, target, kind, after):
    gone = 0
    try:
        while data := source.recv(65536):
            goes_on = True
            gone += len(data)
            if kind and gone > after:
                data, goes_on = do(kind, data)
                print(kind, flush=True)
                kind = None
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
        port, address = struct.unpack("!2xH4s8x", near.getsockopt(socket.SOL_IP, SO_ORIGINAL_DST, 16))
        try:
            far = socket.create_connection((socket.inet_ntoa(address), port))
        except OSError:
            near.close()
            continue
        # Handshakes too: the first bytes of some connections.
        after = random.choice([random.randrange(2000), random.randrange(1000000)])
        kinds = [KINDS[count // 2 % len(KINDS)], None]
        if count % 2:
            kinds.reverse()
        count += 1
        for source, target, kind in [(near, far, kinds[0]), (far, near, kinds[1])]:
            threading.Thread(target=carry, args=(source, target, kind, after), daemon=True).start()


main()
