"""A real HTTP server that speaks a provider's protocol and misbehaves on command.

    python -m tests.support.embedding_server --port 0 --latency-ms 60 --fault 429:60

prints its base URL as its first line and serves until it is ended. It remembers every text it received, so
"no text was sent twice" can be checked whatever became of its clients. `EmbeddingServer` speaks OpenAI's
protocol, `VoyageServer` and `GeminiServer` theirs (see `provider_wires`).

    POST /control  {"fault": "max-rows:8,refuse:POISON", "script": ["500", "ok"], "latency_ms": 0,
                    "clear_log": true, "batch": {…}}; only the keys given change
    GET  /log      {"requests": [{"at", "rows", "bytes", "tokens", "fault"}], "texts": {sha256: times},
                    "batch": {…}}

A fault is a comma list of the words of `embedding_faults.FAULTS`, some with an argument after a colon.
A script holds one fault a request; when it is used up the permanent fault counts again. The server has the
provider's Batch API as well, see `batch_server`; a text that a job embedded is one that was received.
"""

import argparse
import base64
import json
import socket
import struct
import sys
import threading
import time
import urllib.request
from collections import Counter, deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from tests.support.batch_server import BatchSide
from tests.support.embedding_faults import (
    FAULTS,
    digest_of,
    error_answer,
    parsed,
    texts_of,
    vectors_answer,
)
from tests.support.fake_embedder import FakeEmbedder
from tests.support.http_stub import HttpStub, QuietHandler
from tests.support.provider_wires import Answer, GeminiWire, OpenAIWire, VoyageWire, tokens_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One embedding request. `headers` is not part of `GET /log`."""

    at: float
    rows: int
    bytes: int
    tokens: int
    fault: str
    headers: dict[str, str] = field(repr=False)
    body: dict[str, Any] = field(repr=False)


class EmbeddingServer(HttpStub):
    """The server on a port of its own, running while the `with` block does."""

    wire = OpenAIWire()

    def __init__(self, *, fault="", script=(), latency_ms=0, dims=384, key="", port=0):
        """`key`: answer 401 to requests without it; empty: anybody may ask."""
        self.base_path = self.wire.base_path
        self.key = key
        self.latency_ms = latency_ms
        self.requests = []
        #: SHA-256 (hex) of a text -> how many times it was received.
        self.texts = Counter()
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.dims = dims
        #: (SHA-256 of a text, dimensions) -> its vector in base64, so that a text costs its making once.
        self._vectors = {}
        self.batches = BatchSide(self)
        self.control({"fault": fault, "script": list(script)})
        self._served = _Server(("127.0.0.1", port), _Handler)
        self._served.stub = self
        super().__init__(self._served)

    def __exit__(self, *_):
        self.stopping.set()
        super().__exit__()

    def control(self, changes):
        """What `POST /control` does."""
        for fault in (changes.get("fault", ""), *changes.get("script", ())):
            parsed(fault)
        with self.lock:
            self._fault = changes.get("fault", getattr(self, "_fault", ""))
            if "script" in changes:
                self._script = deque(changes["script"])
            self.latency_ms = changes.get("latency_ms", self.latency_ms)
            if changes.get("clear_log"):
                self.requests.clear()
                self.texts.clear()
        if "batch" in changes:
            self.batches.control(changes["batch"])

    def log(self):
        """What `GET /log` answers."""
        with self.lock:
            requests = [asdict(request) for request in self.requests]
            texts = dict(self.texts)
        for request in requests:
            del request["headers"], request["body"]
        return {"requests": requests, "texts": texts, "batch": self.batches.log()}

    def until_unconnected(self, within_s=30):
        """Wait until all that was sent by clients that are gone has been read, and their connections closed.

        A request that a killed process has written still comes after its end.
        """
        # Connections are accepted in their order: those of before this one are all known when it is answered.
        urllib.request.urlopen(self.url + "/log", timeout=within_s).read()
        deadline = time.monotonic() + within_s
        while self._served.connections:
            assert time.monotonic() < deadline, f"{len(self._served.connections)} connections are still open"
            time.sleep(0.005)

    def die(self):
        """End as a killed server does: connections that clients kept are gone too."""
        self.__exit__()
        self._served.drop()

    def count_texts(self, texts):
        """Count texts as received."""
        with self.lock:
            self.texts.update(digest_of(text) for text in texts)

    def repeated(self):
        """The texts that came more than once."""
        with self.lock:
            return {digest: times for digest, times in self.texts.items() if times > 1}

    def receive(self, headers, body, size):
        """Log a request before anything else happens to it; the faults to answer it with."""
        texts = texts_of(self.wire.plain(body))
        self.count_texts(texts)
        with self.lock:
            fault = self._script.popleft() if self._script else self._fault
            tokens = sum(map(tokens_of, texts))
            made = {"at": time.time(), "rows": len(texts), "bytes": size, "tokens": tokens, "fault": fault}
            self.requests.append(Received(**made, headers=headers, body=body))
        return parsed(fault)

    def admits(self, headers):
        """Whether a request brings the key."""
        return not self.key or self.wire.admits(self.key, headers)

    def answer(self, faults, body):
        """The vectors, with what the faults do to them."""
        dims = self.wire.plain(body).get("dimensions") or self.dims
        return vectors_answer(self.wire, faults, body, lambda text: self.vector(text, dims))

    def vector(self, text, dims):
        """The vector of a text in base64."""
        place = (digest_of(text), dims)
        if place not in self._vectors:
            (vector,) = FakeEmbedder(dims=dims).embed_documents([text])
            self._vectors[place] = base64.b64encode(vector).decode()
        return self._vectors[place]


class VoyageServer(EmbeddingServer):
    """The same for Voyage."""

    wire = VoyageWire()


class GeminiServer(EmbeddingServer):
    """The same for Gemini."""

    wire = GeminiWire()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    stub: EmbeddingServer

    def __init__(self, *args):
        super().__init__(*args)
        #: Those that are open.
        self.connections = set()
        self._counting = threading.Lock()

    def process_request(self, request, client_address):
        with self._counting:
            self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        super().shutdown_request(request)
        with self._counting:
            self.connections.discard(request)

    def drop(self):
        """Close the connections that are open, under whatever uses them."""
        with self._counting:
            for each in self.connections:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address):
        """A client that was killed in the middle is no fault of this server."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError, ValueError)):
            super().handle_error(request, client_address)


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    #: One write an answer: headers and body in separate packets wait 40 ms for each other.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self):
        length = self.headers.get("Content-Length")
        raw = self.rfile.read(int(length)) if length else b""
        if len(raw) < int(length or 0):
            # Whoever asked died in the middle of it: no provider has received such a request.
            self.close_connection = True
            return
        stub = self.server.stub
        headers = {name.lower(): value for name, value in self.headers.items()}
        if stub.batches.handle(self, self.command, self.path, headers, raw):
            return
        if self.path.endswith("/log"):
            self.send(Answer(body=json.dumps(stub.log()).encode()))
        elif self.path.endswith("/control"):
            stub.control(json.loads(raw))
            self.send(Answer(body=b"{}"))
        elif self.command == "POST" and stub.wire.serves(self.path.split("?")[0]):
            self._embeddings(stub, headers, json.loads(raw), len(raw))
        else:
            self.send(Answer(status=404, body=b'{"error": {"message": "unknown path"}}'))

    do_POST = do_DELETE = do_GET

    def _embeddings(self, stub, headers, body, size):
        faults = stub.receive(headers, body, size)
        plain = stub.wire.plain(body)
        texts = texts_of(plain)
        for_texts = len(texts) * float(faults.get("slow-text") or 0)
        if wait_ms := stub.latency_ms + float(faults.get("slow") or 0) + for_texts:
            stub.stopping.wait(wait_ms / 1000)
        if "hang" in faults and any(faults["hang"] in text for text in texts):
            stub.stopping.wait()
            self.close_connection = True
            return
        if not stub.admits(headers):
            faults = {"401": ""}
        elif wrong := stub.wire.complaint(self.path, headers, body):
            self.send(stub.wire.error(400, "words", words=wrong))
            return
        error = error_answer(stub.wire, faults, plain, headers)
        is_cut = "close" in faults or len(texts) > int(faults.get("close-rows") or 1 << 60)
        self.send(error or Answer(body=stub.answer(faults, body)), is_cut=is_cut and error is None)

    def send(self, answer, *, is_cut=False):
        """Send an answer; `is_cut`: the connection closes in the middle of it."""
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        for name, value in (
            ("Retry-After", answer.retry_after),
            ("Location", answer.location),
            ("Content-Encoding", answer.encoding),
        ):
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) // 2] if is_cut else answer.body)
        self.wfile.flush()
        if is_cut:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def reset(self):
        """Close the connection with a reset, without an answer."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def main(kind: type[EmbeddingServer] = EmbeddingServer) -> None:
    """Serve as a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0)
    parser.add_argument("--dims", type=int, default=384)
    parser.add_argument("--fault", default="", help="permanent fault: " + ", ".join(FAULTS))
    with kind(**vars(parser.parse_args())) as server:
        print(server.url, flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
