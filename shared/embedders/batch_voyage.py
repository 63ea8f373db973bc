"""Voyage's Batch API: OpenAI's, with model and parameters said once for the whole job.

As documented at docs.voyageai.com/docs/batch-inference and /reference/create-batch (2026): rows hold
`custom_id` and `body.input` alone, a job has `request_params` and 12 hours, 100,000 texts and 1 GB are its
most. Times are RFC 3339, a list may come without `has_more`, and a failed row has `response.message` in
place of a body. An account may have 100 jobs and 1,000 million tokens under way; more are answered with 429.
"""

from __future__ import annotations

from shared.embedders.batch import BatchApi, BatchRow
from shared.embedders.batch_openai import OpenAIBatch
from shared.embedders.batch_remote import is_batch_api
from shared.embedders.endpoint import Endpoint
from shared.embedders.protocol import Identity
from shared.embedders.voyage import VoyageEmbedder, parameters


def build_batch(*, identity: Identity, endpoint: Endpoint, timeout_s: float, vector_dims: int) -> BatchApi:
    """The Batch API of an identity. No network is used yet."""
    return is_batch_api(
        VoyageBatch(identity=identity, endpoint=endpoint, timeout_s=timeout_s, vector_dims=vector_dims)
    )


class VoyageBatch(OpenAIBatch):
    """Jobs at Voyage."""

    known_dims = VoyageEmbedder.known_dims
    window = "12h"

    def _row(self, row: BatchRow) -> dict[str, object]:
        return {"custom_id": row.key, "body": {"input": row.text}}

    def _more(self) -> dict[str, object]:
        return {"request_params": parameters(self._identity, as_query=False)}
