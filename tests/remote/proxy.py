"""A proxy that passes bytes on, and cuts every connection after a while, as those of offices and clouds do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class CuttingProxy:
    """Listens on 127.0.0.1 and passes everything on to `port`; no connection lasts longer than `seconds`."""

    def __init__(self, port: int, seconds: float) -> None:
        self._to, self._seconds, self.cuts = port, seconds, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near, socket.create_connection(("127.0.0.1", self._to)) as far:
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()
            time.sleep(self._seconds)
            self.cuts += 1
            for one in (near, far):
                one.shutdown(socket.SHUT_RDWR)

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while found := one.recv(1 << 16):
                other.sendall(found)
            other.shutdown(socket.SHUT_RDWR)
