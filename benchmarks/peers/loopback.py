"""Enables loopback, then executes a command: `unshare -n python loopback.py COMMAND...` runs it in its own network.

Ray and torchrun listen on every interface. In a fresh network namespace there is only 127.0.0.1.
"""

import fcntl
import os
import socket
import struct
import sys

SIOCSIFFLAGS, IFF_UP = 0x8914, 1

if __name__ == "__main__":
    others = [name for _, name in socket.if_nameindex() if name != "lo"]
    if others:
        sys.exit(f"loopback.py: {', '.join(others)} can be seen from here; start it under `unshare -n`")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
    os.execvp(sys.argv[1], sys.argv[1:])
