"""Sends the subnet manager one real trap from the node that SIM_HOST names, through libibumad and so through ibsim.

    LD_PRELOAD=libumad2sim.so SIM_HOST=S-... python send_trap.py NUMBER MANAGER_LID OWN_LID PORT

A notice of subnet management (InfiniBand Architecture Specification, volume 1, sections 13.4.8 and 14.2.5).
"""

import ctypes
import fcntl
import struct
import sys
import termios
import time
from pathlib import Path

MAD_BYTES = 256
_NOTICE_AT = 64  # where the data of a LID-routed subnet management packet begins
_URGENT, _SECURITY, _INFORMATION = 1, 2, 4
_SWITCH = 2


def notice(number: int, lid: int, port: int) -> bytes:
    """The 256 bytes of a trap: its header, and the notice."""
    packet = bytearray(MAD_BYTES)
    packet[0:4] = bytes((1, 0x01, 1, 0x05))  # version, subnet management by LID, class version, method Trap
    packet[12:16] = struct.pack("!I", time.time_ns() & 0xFFFFFFFF)  # the transaction
    packet[16:18] = struct.pack("!H", 0x0002)  # attribute Notice
    grade = _SECURITY if number >= 256 else _INFORMATION if number in (144, 145) else _URGENT
    head = struct.pack("!BBBBHH", 0x80 | grade, 0, 0, _SWITCH, number, lid)
    if number in (257, 258):
        # who sent it, to whom, which key, from and to which queue pair
        details = struct.pack("!xxHHIII", lid, port, 0x8001, 0x123, 0x456)
    else:
        details = struct.pack("!xxHB", lid, port)
    body = head + struct.pack("!H", 0) + details
    packet[_NOTICE_AT : _NOTICE_AT + len(body)] = body
    return bytes(packet)


def is_taken() -> bool:
    """Whether ibsim has read all that this process sent: what it has not is lost as the port is closed."""
    links = Path("/proc/self/fd").iterdir()
    sockets = [int(link.name) for link in links if link.is_socket()]
    return all(fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4)) == bytes(4) for number in sockets)


def send(packet: bytes, manager_lid: int) -> None:
    """Hand a packet to the fabric.

    Raises:
        OSError: libibumad refuses it.
    """
    umad = ctypes.CDLL("libibumad.so.3")
    umad.umad_get_mad.restype = ctypes.c_void_p
    umad.umad_get_mad.argtypes = [ctypes.c_void_p]
    umad.umad_set_addr.argtypes = [ctypes.c_void_p] + [ctypes.c_int] * 4
    umad.umad_send.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p] + [ctypes.c_int] * 3
    if umad.umad_init() < 0:
        raise OSError("umad_init")
    descriptor = umad.umad_open_port(None, 0)
    agent = umad.umad_register(descriptor, 1, 1, 0, None)
    buffer = ctypes.create_string_buffer(umad.umad_size() + MAD_BYTES)
    ctypes.memmove(umad.umad_get_mad(buffer), packet, MAD_BYTES)
    umad.umad_set_addr(buffer, manager_lid, 0, 0, 0)
    if descriptor < 0 or agent < 0 or umad.umad_send(descriptor, agent, buffer, MAD_BYTES, 0, 0) < 0:
        raise OSError("umad_send")
    while not is_taken():
        time.sleep(0.01)
    umad.umad_unregister(descriptor, agent)
    umad.umad_close_port(descriptor)


if __name__ == "__main__":
    trap, manager, own, at = (int(word) for word in sys.argv[1:5])
    send(notice(trap, own, at), manager)
