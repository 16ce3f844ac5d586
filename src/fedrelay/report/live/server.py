"""The page of `fedrelay board`: a small server that only this machine reaches.

Promised: it listens on the loopback address only. A request that names another host (DNS rebinding) or comes from
another page (CSRF; a link to the board is none) is refused, and so is one without the random token of the address that
was printed: run folders are their owner's, and other users of the machine can reach its ports. The page loads nothing
from elsewhere.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedrelay import __version__
from fedrelay.errors import BadInput
from fedrelay.report.live.board import Board, Cursor

HOST, PORT = "127.0.0.1", 8765
NAMES = ("127.0.0.1", "localhost")
TOKEN = "X-Fedrelay-Token"
LONGEST = 10_000
"""Bytes of what is sent to us."""
HTML, STYLE, SCRIPT, JSON = "text/html", "text/css", "text/javascript", "application/json"
FILES = {"/board.css": STYLE, "/board.js": SCRIPT, "/charts.js": SCRIPT, "/relay.js": SCRIPT}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request that gets no answer but a number and a sentence."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class Server(ThreadingHTTPServer):
    """The board on a port of the loopback address."""

    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # there it would let others take the port

    def __init__(self, board: Board, port: int = PORT) -> None:
        self.board, self.token = board, secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "is in use" if error.errno == errno.EADDRINUSE else "may not be used"
            raise BadInput(f"port {port} {why}: --port {free_port()} is free, and --port 0 takes any") from None

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{HOST}:{self.port}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away in the middle of an answer is nothing to talk about."""


def free_port() -> int:
    """One that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = f"fedrelay/{__version__}", ""
    timeout = 60

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal is for people."""

    def _answer(self, made: Callable[[], tuple[str, bytes]]) -> None:
        code = 200
        try:
            self._check_host()
            kind, body = made()
        except Refused as refused:
            code, kind, body = refused.code, "text/plain", f"{refused}\n".encode()
        except BadInput as error:
            code, kind, body = 400, "text/plain", f"{error}\n".encode()
        if code >= 400:
            self.close_connection = True  # what follows an unread body would be taken for a request
        self.send_response(code)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _check_host(self) -> None:
        allowed = {f"{name}:{self.server.port}" for name in NAMES}
        if self.headers.get_all("Host") is None or self.headers["Host"] not in allowed:
            raise Refused(403, "this address is not the one of the board")
        origin = self.headers.get("Origin")
        if origin is not None and origin not in {f"http://{name}" for name in allowed}:
            raise Refused(403, "another page may not ask")
        site = self.headers.get("Sec-Fetch-Site", "none")
        if site not in ("none", "same-origin") and not self._leads_here():
            raise Refused(403, "another page may not ask")

    def _leads_here(self) -> bool:
        """Whether a browser goes to our page from another, such as the file of `--open`; the token is asked for all the
        same, and what leads here sees nothing of the page."""
        kind = self.headers.get("Sec-Fetch-Mode"), self.headers.get("Sec-Fetch-Dest")
        return self.command == "GET" and urlsplit(self.path).path == "/" and kind == ("navigate", "document")

    def _check_token(self, given: str | None) -> None:
        if not secrets.compare_digest((given or "").encode(), self.server.token.encode()):
            raise Refused(403, "open the address that `fedrelay board` has printed, with its token")

    def _get(self) -> tuple[str, bytes]:
        parts = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        if parts.path in FILES:
            return FILES[parts.path], content(parts.path[1:])
        if parts.path == "/":
            self._check_token(query.get("token"))
            return HTML, content("board.html").replace(b"{{ token }}", self.server.token.encode())
        self._check_token(self.headers.get(TOKEN))
        if parts.path == "/api/runs":
            return JSON, encoded(self.server.board.runs(cursors(query.get("have", ""))))
        if parts.path == "/api/round":
            return JSON, encoded(self.server.board.round(whole(query, "run"), whole(query, "round")))
        raise Refused(404, "there is nothing here")

    def _post(self) -> tuple[str, bytes]:
        self._check_token(self.headers.get(TOKEN))
        act = {"/api/stop": self.server.board.stop, "/api/resume": self.server.board.resume}.get(self.path)
        if act is None:
            raise Refused(404, "there is nothing here")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LONGEST:
            raise Refused(413, "expected a few bytes of JSON")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except ValueError:
            raise Refused(400, "expected JSON") from None
        return JSON, encoded(act(whole(body if isinstance(body, dict) else {}, "run")))


def content(name: str) -> bytes:
    """A file of the page, out of the package."""
    return resources.files("fedrelay.report.live").joinpath("page", name).read_bytes()


def encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def whole(values: Mapping[str, Any], key: str) -> int:
    """A number that a page sends."""
    found = str(values.get(key, ""))
    if not found.isdecimal() or len(found) > 12:
        raise Refused(400, f"{key} should be a number")
    return int(found)


def cursors(text: str) -> dict[int, Cursor]:
    """What the page has: `run.part.points`, with commas between runs."""
    found: dict[int, Cursor] = {}
    for part in filter(None, text.split(",")):
        numbers = part.split(".")
        if len(numbers) != 3 or not all(number.isdecimal() and len(number) < 13 for number in numbers):
            raise Refused(400, "have should be run.part.points, with commas between")
        run, of, points = map(int, numbers)
        found[run] = of, points
    return found


def serve(folder: Path, *, port: int = PORT, data_dir: Path | None = None) -> Server:
    """A server for the runs below this folder, which has its port and does not answer yet."""
    return Server(Board(folder, data_dir), port)
