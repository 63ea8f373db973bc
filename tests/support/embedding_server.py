"""A real HTTP server that speaks OpenAI's `POST /v1/embeddings` and misbehaves on command.

    python -m tests.support.embedding_server --port 0 --latency-ms 60 --fault 429:60

prints its base URL (ending in /v1) as its first line and serves until it is ended. It remembers every text
it received, so "no text was sent twice" can be checked whatever became of its clients.

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
import sys
import threading
import time
import urllib.request
import zlib
from collections import Counter, deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from http.server import ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

from tests.support.batch_server import POOL, BatchSide
from tests.support.batch_wires import OpenAIWire, Wire
from tests.support.embedding_faults import (
    FAULTS,
    ErrorAnswer,
    checked,
    digest_of,
    error_answer,
    parsed,
    texts_of,
    tokens_of,
    vectors_answer,
)
from tests.support.fake_embedder import FakeEmbedder
from tests.support.http_stub import HttpStub, QuietHandler


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
    """The server on a port of its own, running while the `with` block does.

    What differs between protocols is in the methods from `serves` on; servers of others replace them.
    """

    base_path = "/v1"
    batch_wire: type[Wire] = OpenAIWire

    def __init__(
        self,
        *,
        fault="",
        script=(),
        latency_ms=0,
        dims=384,
        key="",
        port=0,
        cheap=False,
    ):
        """`key`: answer 401 without `Authorization: Bearer <key>`; empty: anybody may ask.

        `cheap`: texts share a few vectors, so that many cost little.
        """
        self.cheap = cheap
        self.key = key
        self.latency_ms = latency_ms
        self.requests = []
        #: SHA-256 (hex) of a text -> how many times it was received.
        self.texts = Counter()
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.dims = dims
        self._embedders = {dims: FakeEmbedder(dims=dims)}
        #: (SHA-256 of a text, dimensions) -> its vector in base64, so that a text costs its making once.
        self._vectors = {}
        self.batches = BatchSide(self, self.batch_wire())
        self.control({"fault": fault, "script": list(script)})
        self._served = _Server(("127.0.0.1", port), _Handler)
        self._served.stub = self
        super().__init__(self._served)

    def __exit__(self, *_):
        self.stopping.set()
        super().__exit__()
        self.batches.jobs.close()

    def control(self, changes):
        """What `POST /control` does."""
        with self.lock:
            if "fault" in changes:
                self._fault = checked(changes["fault"])
            if "script" in changes:
                self._script = deque(checked(fault) for fault in changes["script"])
            self.latency_ms = changes.get("latency_ms", self.latency_ms)
            if changes.get("clear_log"):
                self.requests.clear()
                self.texts.clear()
        if "batch" in changes:
            self.batches.control(changes["batch"])

    def log(self):
        """What `GET /log` answers."""
        with self.lock:
            shown = [
                {name: value for name, value in asdict(request).items() if name not in ("headers", "body")}
                for request in self.requests
            ]
            texts = dict(self.texts)
        return {"requests": shown, "texts": texts, "batch": self.batches.log()}

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
        texts = texts_of(self.plain(body))
        digests = [digest_of(text) for text in texts]
        with self.lock:
            fault = self._script.popleft() if self._script else self._fault
            tokens = sum(tokens_of(text) for text in texts)
            self.requests.append(
                Received(
                    at=time.time(),
                    rows=len(texts),
                    bytes=size,
                    tokens=tokens,
                    fault=fault,
                    headers=headers,
                    body=body,
                )
            )
            self.texts.update(digests)
        return parsed(fault)

    def serves(self, path):
        """Whether embedding requests are sent to this path."""
        return path == f"{self.base_path}/embeddings"

    def plain(self, body):
        """A request in OpenAI's words: `input`, and if given `model`, `dimensions`, `encoding_format`."""
        return body

    def admits(self, headers):
        """Whether the request brings the key."""
        return not self.key or headers.get("authorization") == f"Bearer {self.key}"

    def complaint(self, path, headers, body):
        """What is wrong with a request that is not as documented; OpenAI's own is checked by nobody here."""
        return None

    def error(self, faults, body, headers):
        """The error that the faults want for a request, if any."""
        return error_answer(faults, body, headers)

    def plain_error(self, status, message, code):
        """An error in the provider's shape."""
        body = {"error": {"message": message, "type": code, "param": None, "code": code}}
        return ErrorAnswer(status=status, body=json.dumps(body).encode())

    def answer(self, faults, body):
        """The vectors, with what the faults do to them."""
        dims = body.get("dimensions") or self.dims
        return vectors_answer(faults, body, lambda text: self.vector(text, dims))

    def vector(self, text, dims):
        """The vector of a text in base64."""
        picked = zlib.crc32(text.encode("utf-8", "replace")) % POOL if self.cheap else -1
        place = (str(picked) if self.cheap else digest_of(text), dims)
        found = self._vectors.get(place)
        if found is None:
            if self.cheap:
                # Many words, so that no number of the vector is zero.
                text = " ".join(str((picked + 1) * number) for number in range(1000, 2000))
            embedder = self._embedders.setdefault(dims, FakeEmbedder(dims=dims))
            found = base64.b64encode(embedder.embed_documents([text])[0]).decode()
            self._vectors[place] = found
        return found


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
        if self.path.endswith("/log"):
            self._json(200, self.server.stub.log())
        else:
            self.do_DELETE()

    def do_DELETE(self):
        if not self.server.stub.batches.handle(self):
            self._json(404, {"error": {"message": "unknown path"}})

    def do_POST(self):
        if self.server.stub.batches.handle(self):
            return
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        if len(raw) < length:
            # Whoever asked died in the middle of it: no provider has received such a request.
            self.close_connection = True
            return
        body = json.loads(raw) if raw[:1] in (b"{", b"[") else {}
        if self.path.endswith("/control"):
            self.server.stub.control(body)
            self._json(200, {})
        elif self.server.stub.serves(self.path.split("?")[0]):
            self._embeddings(body, len(raw))
        else:
            self._json(404, {"error": {"message": "unknown path"}})

    def _embeddings(self, body, size):
        stub = self.server.stub
        headers = {name.lower(): value for name, value in self.headers.items()}
        faults = stub.receive(headers, body, size)
        texts = texts_of(stub.plain(body))
        for_texts = len(texts) * float(faults.get("slow-text") or 0)
        if wait_ms := stub.latency_ms + float(faults.get("slow") or 0) + for_texts:
            stub.stopping.wait(wait_ms / 1000)
        if "hang" in faults and any(faults["hang"] in text for text in texts):
            stub.stopping.wait()
            self.close_connection = True
            return
        if not stub.admits(headers):
            faults = {"401": ""}
        error = stub.complaint(self.path, headers, body) or stub.error(faults, body, headers)
        if error is None:
            cut = "close" in faults or len(texts) > int(faults.get("close-rows") or 1 << 60)
            self._answer(200, stub.answer(faults, body), "application/json", cut=cut)
        else:
            headers = {
                "Retry-After": error.retry_after,
                "Location": error.location,
                "Content-Encoding": error.encoding,
            }
            self._answer(error.status, error.body, error.kind, headers=headers)

    def _json(self, status, body):
        self._answer(status, json.dumps(body).encode(), "application/json")

    def _answer(
        self,
        status,
        body,
        kind,
        *,
        headers=MappingProxyType({}),
        cut=False,
    ):
        """`headers` without a value are left out."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.wfile.flush()
        if cut:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)


def main(kind: type[EmbeddingServer] = EmbeddingServer) -> None:
    """Serve as a program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=0)
    parser.add_argument("--dims", type=int, default=384)
    parser.add_argument("--key", default="", help="answer 401 to everybody without this key")
    parser.add_argument("--cheap", action="store_true", help="texts share vectors")
    parser.add_argument("--batch", default="{}", help="JSON for the Batch API, see batch_server")
    parser.add_argument("--fault", default="", help="permanent fault: " + ", ".join(FAULTS))
    options = parser.parse_args()
    server = kind(
        fault=options.fault,
        latency_ms=options.latency_ms,
        dims=options.dims,
        key=options.key,
        port=options.port,
        cheap=options.cheap,
    )
    server.batches.control(json.loads(options.batch))
    with server:
        print(server.url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
