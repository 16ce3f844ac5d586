"""A proxy that passes bytes on, and cuts every connection after so many, as those of offices and clouds do."""

from __future__ import annotations

import contextlib
import socket
import threading


class CuttingProxy:
    """Listens on 127.0.0.1 and passes everything on to `port`; no connection carries more than about `most` bytes."""

    def __init__(self, port: int, most: int) -> None:
        self._to, self._most, self.cuts = port, most, 0
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
            carried = [0]
            back = threading.Thread(target=self._pass, args=(far, near, carried), daemon=True)
            back.start()
            self._pass(near, far, carried)
            back.join()

    def _pass(self, one: socket.socket, other: socket.socket, carried: list[int]) -> None:
        with contextlib.suppress(OSError):
            while (found := one.recv(1 << 16)) and carried[0] <= self._most:
                other.sendall(found)
                carried[0] += len(found)
            self.cuts += carried[0] > self._most
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
