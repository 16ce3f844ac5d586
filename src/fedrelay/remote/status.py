"""How a server is doing, for whoever asks on the same machine: health, clients and hops, figures for Prometheus."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fedrelay.engines.remote import Remote
from fedrelay.engines.remote.relaying import Pending
from fedrelay.errors import BadInput

HOST = "127.0.0.1"
"""Nobody else may ask: what it says is of clients."""


def status_of(engine: Remote) -> dict[str, Any]:
    """Who is there, and what the round under way has done so far."""
    there, hops, history, now = engine.there.copy(), list(engine.hops), engine.history, time.monotonic()
    working = {pending.client: pending for pending in list(engine.pending.values())}
    clients = [
        {
            "client": number,
            "name": engine.called(number),
            "there": number in there,
            "late": number in engine.late,
            "at_work": number in working and working[number].asked,
            "state": state_of(number, engine, working),
            "last_seen": None if number not in history.seen else now - history.seen[number],
            "visits": history.visits[number],
            "median_seconds": history.usual(number),
        }
        for number in range(len(engine.sizes))
    ]
    at = {one.chain: one.hop for one in working.values()}
    chains = [
        {"chain": number, "hop": at.get(number, len(chain)), "clients": [engine.called(client) for client in chain]}
        for number, chain in enumerate(engine.chains)
    ]
    return {
        "round": engine.memory.round + 1,
        "clients": clients,
        "chains": chains,
        "hops": [vars(hop) for hop in hops[-100:]],
    }


def state_of(client: int, engine: Remote, working: Mapping[int, Pending]) -> str:
    """What a client is, in a word or two."""
    if client not in engine.there:
        return "lost" if client in engine.members else "not yet"
    if client in engine.late:
        return "late"
    return "at work" if client in working and working[client].asked else "there"


def metrics_of(engine: Remote) -> str:
    """The same in the text form of Prometheus."""
    hops = engine.totals
    figures = {
        "clients": (len(engine.sizes), "gauge", "Clients of this run."),
        "clients_connected": (len(engine.there), "gauge", "Clients that are there."),
        "clients_late": (len(engine.late), "gauge", "Clients that have not answered in time."),
        "rounds_total": (engine.memory.round, "counter", "Rounds that are done."),
        "hops_total": (hops.count, "counter", "Visits since the server has started."),
        "lost_total": (hops.lost, "counter", "Visits that were lost."),
        "hop_seconds_total": (hops.seconds, "counter", "Seconds from requests to answers."),
        "work_seconds_total": (hops.working, "counter", "Of these, seconds at work."),
        "sent_bytes_total": (hops.sent, "counter", "Bytes to clients."),
        "received_bytes_total": (hops.received, "counter", "Bytes from clients."),
    }
    lines = []
    for name, (value, kind, text) in figures.items():
        lines += [f"# HELP fedrelay_{name} {text}", f"# TYPE fedrelay_{name} {kind}", f"fedrelay_{name} {value:g}"]
    return "\n".join(lines) + "\n"


def check_free(port: int) -> None:
    """Refuse a port in use before anybody is waited for: the page itself is there when the clients are."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the page itself does
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise refused(port, error) from None


def refused(port: int, error: Exception) -> BadInput:
    return BadInput(f"--status {port}: cannot listen on {HOST}:{port} ({error}): name another port")


class StatusPage:
    """Answers GET /health, /status and /metrics on this machine's own address (port 0: any that is free)."""

    def __init__(self, port: int, engine: Remote) -> None:
        pages: Mapping[str, tuple[str, Callable[[], str]]] = {
            "/health": ("application/json", lambda: json.dumps({"healthy": True, "round": engine.memory.round + 1})),
            "/status": ("application/json", lambda: json.dumps(status_of(engine))),
            "/metrics": ("text/plain; version=0.0.4", lambda: metrics_of(engine)),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = pages.get(self.path)
                content = (found[1]() if found else "there is: " + ", ".join(pages)).encode()
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", found[0] if found else "text/plain")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: it is asked every few seconds."""

        try:
            self._server = ThreadingHTTPServer((HOST, port), Handler)
        except (OSError, OverflowError) as error:
            raise refused(port, error) from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="fedrelay-status", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
