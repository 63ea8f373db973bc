"""The Batch APIs that a process uses, by agent and identity. A batch outlives settings and models."""

from __future__ import annotations

import threading

from shared.config.schema import AgentSettings
from shared.embedders.batch import BatchApi
from shared.embedders.choice import choice_of
from shared.embedders.no_batch import NoBatchApi
from shared.embedders.protocol import Identity
from shared.errors import ProviderStop


class BatchApis:
    """Built when first asked for, closed together. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._apis: dict[tuple[str, str], BatchApi] = {}

    def of(self, settings: AgentSettings, identity: Identity, base_url: str) -> BatchApi:
        """The Batch API behind an identity; one that refuses everything when there is none to be reached."""
        key = (settings.agent, identity.key)
        with self._lock:
            if key not in self._apis:
                self._apis[key] = _build(settings, identity, base_url)
            return self._apis[key]

    def close(self) -> None:
        for api in self._apis.values():
            api.close()
        self._apis.clear()


def _build(settings: AgentSettings, identity: Identity, base_url: str) -> BatchApi:
    try:
        found = choice_of(settings, identity, base_url).build_batch()
    except ProviderStop as error:
        return NoBatchApi(identity, error)
    hint = "set remote.batch.enabled to false"
    return found or NoBatchApi(identity, ProviderStop(f"{identity.provider} has no Batch API", hint=hint))
