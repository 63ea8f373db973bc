"""A real HTTP server that speaks OpenAI's `POST /v1/chat/completions` and says what it is told to."""

import json
import threading
from contextlib import suppress

from tests.support.http_stub import HttpStub, QuietHandler


class ChatServer(HttpStub):
    base_path = "/v1"

    def __init__(self, answer="NO_REPLY", *, key="", max_bytes=1 << 30):
        #: What it says, or bytes that it answers with as they are.
        self.answer = answer
        #: What it says before that, in order.
        self.answers = []
        self.status = 200
        self.key = key
        #: Where it sends everybody instead of answering.
        self.redirect_to = ""
        #: Holds every answer back while it is clear.
        self.may_answer = threading.Event()
        self.may_answer.set()
        #: Bodies received, in order.
        self.requests = []
        stub = self

        class Handler(QuietHandler):
            def do_POST(self):
                size = int(self.headers["content-length"])
                stub.requests.append(json.loads(self.rfile.read(size)))
                stub.may_answer.wait(120)
                answer = stub.answers.pop(0) if stub.answers else stub.answer
                if stub.redirect_to:
                    self.send_response(307)
                    self.send_header("location", f"{stub.redirect_to}/chat/completions")
                    self.send_header("content-length", "0")
                    self.end_headers()
                elif size > max_bytes:
                    words = b"This model's maximum context length is 2000 tokens, reduce the length"
                    self._send(400, b'{"error": {"message": "%s"}}' % words)
                elif stub.key and self.headers.get("authorization") != f"Bearer {stub.key}":
                    self._send(401, b'{"error": {"message": "Incorrect API key provided"}}')
                elif isinstance(answer, bytes):
                    self._send(stub.status, answer)
                else:
                    message = {"role": "assistant", "content": answer}
                    self._send(stub.status, json.dumps({"choices": [{"message": message}]}).encode())

            def _send(self, status, body):
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                # Whoever asked may be gone: killed, or out of patience.
                with suppress(ConnectionError):
                    self.end_headers()
                    self.wfile.write(body)

        super().__init__(Handler)
