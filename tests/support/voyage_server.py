"""A real HTTP server that speaks Voyage's `POST /v1/embeddings` and misbehaves on command.

    python -m tests.support.voyage_server --port 0 --key pa-… --fault 429-plan

As `embedding_server`, with Voyage's parameters and its errors, which are `{"detail": …}` without a code.
A request that is not as https://docs.voyageai.com/reference/embeddings-api has it is answered with 400.
"""

import json
import re

from tests.support.batch_wires import VoyageWire
from tests.support.embedding_faults import ErrorAnswer, error_answer, tokens_of
from tests.support.embedding_server import EmbeddingServer, main

FIELDS = {"input", "model", "input_type", "truncation", "output_dimension", "output_dtype", "encoding_format"}
DIMENSIONS = (256, 512, 1024, 2048)
MAX_ROWS = 1000
MAX_TOKENS = 120_000

_PLAN = (
    "You have not yet added your payment method in the billing page and will have reduced rate limits of 3 "
    "RPM and 10K TPM. To unlock our standard rate limits, please add a payment method in the billing page "
    "for the appropriate organization in the user dashboard (https://dashboard.voyageai.com/)."
)


class VoyageServer(EmbeddingServer):
    """The server on a port of its own, running while the `with` block does."""

    batch_wire = VoyageWire

    def plain(self, body):
        return {**body, "dimensions": body.get("output_dimension")}

    def complaint(self, path, headers, body):
        wrong = _wrong(headers, body)
        return _detail(400, wrong) if wrong else None

    def error(self, faults, body, headers):
        if "429-plan" in faults:
            return _detail(429, _PLAN)
        answer = error_answer(faults, body, {})
        if answer is None or not answer.body.startswith(b'{"error": {"message"') or answer.status == 200:
            return answer
        said = json.loads(answer.body)["error"]
        return _reworded(answer, said["message"], said["code"], str(body.get("model")))

    def plain_error(self, status, message, code):
        return _detail(status, message)

    def answer(self, faults, body):
        return super().answer(faults, self.plain(body))


def _wrong(headers, body):
    """What is not as documented; empty when all is."""
    if not headers.get("authorization", "").startswith("Bearer "):
        return "Provide an API key in the Authorization header."
    unknown = body.keys() - FIELDS
    if unknown:
        return f"Argument '{min(unknown)}' is not supported by our API."
    texts = body.get("input")
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        return "Input cannot contain empty strings or empty lists"
    if len(texts) > MAX_ROWS:
        return f"The batch size limit is {MAX_ROWS}. Your batch size is {len(texts)}."
    tokens = sum(map(tokens_of, texts))
    if tokens > MAX_TOKENS:
        return _too_many_tokens(MAX_TOKENS, tokens)
    if body.get("input_type") not in ("query", "document", None):
        return "Value supplied for argument 'input_type' is not valid -- accepted values are query, document."
    if body.get("output_dimension") not in (*DIMENSIONS, None):
        given = body["output_dimension"]
        return (
            f"Value '{given}' supplied for argument 'output_dimension' is not valid -- accepted values for "
            f"'{body.get('model')}' are {list(DIMENSIONS)}."
        )
    if body.get("encoding_format") not in ("base64", None):
        return "Value supplied for argument 'encoding_format' is not valid -- accepted values are base64."
    return ""


def _reworded(answer, message, code, model):
    """An error of OpenAI's in the words of Voyage's."""
    numbers = [int(number) for number in re.findall(r"\d+", message)]
    if code == "invalid_api_key":
        return _detail(401, "Provided API key is invalid.")
    if code == "insufficient_quota":
        return _detail(answer.status, "Your free tokens and credits have been used up.")
    if code == "model_not_found":
        return _detail(400, f"Model {model} is not supported. Supported models are ['voyage-4-large'].")
    if code == "rate_limit_exceeded":
        text = "You have exceeded the rate limit of your organization for this model."
        return _detail(429, text, retry_after=answer.retry_after)
    if code == "server_error":
        return _detail(answer.status, "Something went wrong on our end.", retry_after=answer.retry_after)
    if code == "array_above_max_length":
        message = f"The batch size limit is {numbers[0]}. Your batch size is {numbers[1]}."
    elif code == "context_length_exceeded":
        message = (
            f"Request to model '{model}' failed. The example at index 0 in your batch has too many tokens "
            f"and does not fit into the model's context window of {numbers[0]} tokens. Please lower the "
            "number of tokens in the listed example(s)."
        )
    elif code == "max_tokens_per_request":
        message = f"Request to model '{model}' failed. " + _too_many_tokens(numbers[1], numbers[0])
    return _detail(400, message)


def _too_many_tokens(cap, tokens):
    return (
        f"The max allowed tokens per submitted batch is {cap}. Your batch has {tokens} tokens after "
        "truncation. Please lower the number of tokens in the batch."
    )


def _detail(status, text, *, retry_after=""):
    return ErrorAnswer(status=status, body=json.dumps({"detail": text}).encode(), retry_after=retry_after)


if __name__ == "__main__":
    main(VoyageServer)
