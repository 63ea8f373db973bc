"""Define what findings need to know of a fleet, for modules that do not import redis."""

from __future__ import annotations

import msgspec

from memline.shared.errors import QueueError


class FleetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What agents need to know of their fleet."""

    #: Why Redis does not answer, or takes no messages; None when it does.
    error: QueueError | None = None
    #: Roles that are needed and that no worker has.
    missing: tuple[str, ...] = ()
    #: Workers that are alive, and messages that failed for good.
    workers: int = 0
    dead: int = 0
    #: Name, newer configuration file and command of the workers that are older than their configuration.
    old_workers: tuple[tuple[str, str, str], ...] = ()

    @property
    def is_embedding(self) -> bool:
        """Whether texts are sent and vectors stored."""
        return self.error is None and not {"store", "embed"} & {*self.missing}
