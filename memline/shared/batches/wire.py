"""Speak the Batch APIs of OpenAI, Voyage and Gemini: upload a file of rows, make a job, read what it made.

A job costs money, so `create` is sent once, with a tag that was committed before, by which `find` finds it
after a lost answer. Everything else may be sent again. As documented in 2026: OpenAI and Voyage name two
files, of answered and of other rows, whatever the final state is; Gemini answers with an operation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import IO, Any
from urllib.parse import quote

import msgspec

from memline.shared.clock import Clock
from memline.shared.embedders import remote
from memline.shared.embedders.choice import Choice
from memline.shared.embedders.http import HttpClient
from memline.shared.embedders.protocol import CALL_ATTEMPTS, Values, counted_call, unit_vector
from memline.shared.embedders.provider_errors import redact_line
from memline.shared.errors import ProviderBrokenAnswer, ProviderError
from memline.shared.values import as_count, as_dict, as_list, as_text

#: Our words for the final states of a job, by the last word of the provider's (`BATCH_STATE_…` at Gemini).
FINAL = {
    **dict.fromkeys(("completed", "succeeded", "done"), "done"),
    **dict.fromkeys(("cancelled", "canceled"), "cancelled"),
    **{word: word for word in ("failed", "expired")},
}

#: Jobs in a page of a list, the providers' own maximum; and pages that are read, more than any account has.
PAGE_ROWS, MAX_PAGES = 100, 1_000

#: Makes an uploaded file that nobody removed go after a week.
_EXPIRY = {"expires_after[anchor]": "created_at", "expires_after[seconds]": "604800"}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its provider describes it at one moment."""

    id: str
    #: running, or a word of FINAL.
    state: str
    #: The provider's own word for the state.
    provider_state: str = ""
    #: Why it failed, fit to be shown; empty when there is no reason.
    reason: str = ""
    #: Rows that have a result, as the provider counts them.
    done: int = 0
    #: Files of results: they may be there whatever the final state is.
    outputs: tuple[str, ...] = ()
    tag: str = ""


class OpenAI:
    """Jobs at OpenAI, or at a server that speaks its protocol. Every failure is a ProviderError."""

    _window, _cancel, _expires = "24h", "/cancel", True

    def __init__(self, choice: Choice, clock: Clock) -> None:
        assert choice.identity is not None and choice.endpoint is not None
        self.identity, self._endpoint = choice.identity, choice.endpoint
        self._http = HttpClient(choice.endpoint, timeout_s=choice.timeout_s, clock=clock)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def row(self, key: str, text: str) -> dict[str, Any]:
        """Make the row of a text."""
        body = remote.openai_request(self.identity, text)
        if self._endpoint.public:
            # Of others a refusal of it would look like a refusal of the text.
            body["encoding_format"] = "base64"
        return {"custom_id": key, "method": "POST", "url": "/v1/embeddings", "body": body}

    def upload(self, file: IO[bytes], tag: str) -> str:
        """Send the file of rows and return its name. Sent again it costs nothing."""
        form = {"purpose": "batch"} | (_EXPIRY if self._endpoint.public and self._expires else {})
        files = {"file": (f"memline-{tag}.jsonl", file, "application/jsonl")}
        return self._word(self._ask("POST", "/files", "file upload", data=form, files=files), "id")

    def create(self, file_id: str, tag: str, agent: str) -> Job:
        """Make the job. After an error it may have been made."""
        about = {"source": "memline", "agent": agent[:512], "tag": tag}
        body = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": self._window}
        made = {**body, "metadata": about, **self._parameters()}
        return self._job(self._ask("POST", "/batches", "create", body=made))

    def _parameters(self) -> dict[str, Any]:
        return {}

    def find(self, tag: str) -> Job | None:
        """Find the job with this tag in the provider's whole list."""
        cursor: dict[str, str] = {}
        for _ in range(MAX_PAGES):
            jobs, cursor = self._page(cursor)
            if job := next((each for each in jobs if each.tag == tag), None):
                return job
            if not cursor:
                return None
        raise self._broken("the list of jobs has no end")

    def _page(self, cursor: dict[str, str]) -> tuple[list[Job], dict[str, str]]:
        page = self._ask("GET", "/batches", "list", params={"limit": str(PAGE_ROWS), **cursor})
        if not isinstance(page.get("data"), list):
            # Not the same as an empty one: where no job is found, a second one may be made.
            raise self._broken("there is no list of jobs")
        jobs = [self._job(as_dict(each)) for each in page["data"]]
        # Voyage's own example has no `has_more`.
        has_more = jobs and page.get("has_more", len(jobs) >= PAGE_ROWS)
        return jobs, {"after": jobs[-1].id} if has_more else {}

    def job(self, job_id: str) -> Job:
        """Ask how far a job is."""
        return self._job(self._ask("GET", _path("batches", job_id), "status"))

    def cancel(self, job_id: str) -> None:
        """Ask for the end of a job; rows that are finished are kept, and paid for."""
        self._ask("POST", f"{_path('batches', job_id)}{self._cancel}", "cancel", body={})

    def delete(self, file_id: str) -> None:
        """Remove a file. Raises no ProviderError: it goes by itself after some days."""
        with suppress(ProviderError):
            self._ask("DELETE", _path("files", file_id), "file delete")

    def results(self, file_id: str) -> Iterator[tuple[str, bytes, str]]:
        """Yield the key and the vector of each row of results, or why it has none, as they arrive."""
        for line in self._lines(file_id):
            key = ""
            try:
                row = as_dict(msgspec.json.decode(line))
                key = str(row.get("custom_id") or row.get("key") or "")
                yield key, unit_vector(self._vector(row), dims=None), ""
            except (ProviderError, ValueError, RecursionError) as error:
                yield key, b"", str(error)

    def _lines(self, file_id: str) -> Iterator[str]:
        return self._http.lines(f"{_path('files', file_id)}/content", what="batch file content")

    def _vector(self, row: dict[str, Any]) -> Values:
        body = as_dict(as_dict(row.get("response")).get("body"))
        data = as_list(body.get("data"))
        if row.get("error") or len(data) != 1:
            raise self._broken(row.get("error") or body.get("error") or "a row has no vector")
        return remote.openai_values(as_dict(data[0]).get("embedding"))

    def _job(self, raw: dict[str, Any]) -> Job:
        state, errors = self._word(raw, "status"), as_list(as_dict(raw.get("errors")).get("data"))
        return Job(
            id=self._word(raw, "id"),
            state=FINAL.get(state.lower(), "running"),
            provider_state=self._shown(state),
            reason="; ".join(map(self._shown, errors[:3])),
            done=as_count(as_dict(raw.get("request_counts")).get("completed")),
            outputs=tuple(filter(None, map(as_text, (raw.get("output_file_id"), raw.get("error_file_id"))))),
            tag=str(as_dict(raw.get("metadata")).get("tag") or ""),
        )

    # What all of them share.

    def _ask(self, method: str, path: str, what: str, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer. What makes something is sent once."""
        with counted_call(1 if method == "POST" else CALL_ATTEMPTS):
            reply = self._http.call(method, path, what=f"batch {what}", **request)
        return as_dict(self._http.json(reply, may_have_error=True))

    def _word(self, raw: dict[str, Any], name: str) -> str:
        word = as_text(raw.get(name))
        if not 0 < len(word) <= 1_000:
            raise self._broken(f"an answer without `{name}`")
        return word

    def _shown(self, error: Any) -> str:
        """Put an error in words that are fit to be shown."""
        words = as_dict(error).get("message") or as_dict(error).get("code") or error or ""
        return redact_line(str(words), self._endpoint.secrets)

    def _broken(self, problem: Any) -> ProviderBrokenAnswer:
        text = f"{self._endpoint.provider} batch failed: {self._shown(problem)}"
        return ProviderBrokenAnswer(text, status=200)


class Voyage(OpenAI):
    """Jobs at Voyage: model and parameters are given once for the whole job."""

    _window, _expires = "12h", False

    def row(self, key: str, text: str) -> dict[str, Any]:
        return {"custom_id": key, "body": {"input": text}}

    def _parameters(self) -> dict[str, Any]:
        return {"request_params": remote.voyage_parameters(self.identity, as_query=False)}


class Gemini(OpenAI):
    """Jobs at Gemini: the Files API, `:asyncBatchEmbedContent` and a long-running operation."""

    _cancel = ":cancel"

    def row(self, key: str, text: str) -> dict[str, Any]:
        return {"key": key, "request": remote.gemini_row(self.identity, text)}

    def upload(self, file: IO[bytes], tag: str) -> str:
        # httpx makes forms alone, and Google takes two parts without names.
        about = {"file": {"displayName": f"memline-{tag}.jsonl", "mimeType": "application/jsonl"}}
        part = f"--{tag}\r\nContent-Type: application/"
        head = f"{part}json\r\n\r\n{json.dumps(about)}\r\n{part}jsonl\r\n\r\n".encode()
        tail = f"\r\n--{tag}--\r\n".encode()
        size = len(head) + file.seek(0, 2) + len(tail)
        file.seek(0)
        headers = {"content-type": f"multipart/related; boundary={tag}", "content-length": str(size)}
        sent = {"params": {"uploadType": "multipart"}, "headers": headers, "service": "upload"}
        made = self._ask("POST", "/files", "file upload", content=chain([head], file, [tail]), **sent)
        return self._word(as_dict(made.get("file", made)), "name")

    def create(self, file_id: str, tag: str, agent: str) -> Job:
        # The tag comes last: an agent's name may have blanks.
        about = {"displayName": f"memline {agent[:400]} {tag}", "inputConfig": {"file_name": file_id}}
        path = f"/models/{quote(self.identity.model, safe='')}:asyncBatchEmbedContent"
        return self._job(self._ask("POST", path, "create", body={"batch": about}))

    def _page(self, cursor: dict[str, str]) -> tuple[list[Job], dict[str, str]]:
        page = self._ask("GET", "/batches", "list", params={"pageSize": str(PAGE_ROWS), **cursor})
        # Google leaves out a list that is empty, and answers nothing else then.
        if not isinstance(page.get("operations"), list) and page.keys() - {"nextPageToken"}:
            raise self._broken("there is no list of jobs")
        jobs = [self._job(as_dict(each)) for each in as_list(page.get("operations"))]
        token = as_text(page.get("nextPageToken"))
        return jobs, {"pageToken": token} if token else {}

    def _lines(self, file_id: str) -> Iterator[str]:
        path, params = f"{_path('files', file_id)}:download", {"alt": "media"}
        return self._http.lines(path, params=params, service="download", what="batch file content")

    def _vector(self, row: dict[str, Any]) -> Values:
        response = as_dict(row.get("response"))
        if failure := row.get("error") or response.get("error"):
            raise self._broken(failure)
        return remote.gemini_values(response.get("embedding") or row.get("embedding"))

    def _job(self, raw: dict[str, Any]) -> Job:
        about = as_dict(raw.get("metadata")) or raw
        words, failure = str(about.get("state") or raw.get("state") or ""), raw.get("error")
        state = FINAL.get(words.lower().rpartition("_")[2], "running")
        if raw.get("done") and state == "running":
            # The operation has ended, its state is only late.
            state = "failed" if failure else "done"
        # The place of the result file's name has moved over time.
        places = json.dumps([raw.get("response"), about.get("output"), about.get("dest")])
        name = str(about.get("displayName") or "")
        return Job(
            id=self._word(raw if raw.get("name") else about, "name"),
            state=state,
            provider_state=self._shown(words),
            reason=self._shown(failure),
            done=as_count(as_dict(about.get("batchStats")).get("successfulRequestCount")),
            outputs=tuple(re.findall(r"files/[^/?#:\"]+", places)[:1]),
            tag=name.rpartition(" ")[2] if name.startswith("memline ") else "",
        )


#: The Batch API of each provider that has one.
KINDS: Mapping[str, type[OpenAI]] = {"openai": OpenAI, "voyage": Voyage, "gemini": Gemini}


def _path(kind: str, name: str) -> str:
    """Return the path of a file or a job. Google's names begin with their kind."""
    return f"/{kind}/{quote(name.removeprefix(f'{kind}/'), safe='')}"
