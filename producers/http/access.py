"""Whose memory a request may see: the token it carries, and what that token opens.

Tokens are compared as digests in constant time, all of them for every request, so that neither the answer nor
its time tells how much of a guess was right.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from producers.memory_tools import Caller
from shared.config.faces import Serve
from shared.errors import AccessDenied
from shared.values import value


@value
class Access:
    """What a request may do."""

    #: Who asks, for limits: the name of the token, never the token.
    client: str
    #: The one agent that the token opens; empty: all.
    only: str
    #: The agent that is meant when the request names none.
    default_agent: str

    def caller(self, agent: str = "", session_key: str = "") -> Caller:
        """The caller that the request names. Raises AccessDenied for an agent of another token."""
        if self.only and agent not in ("", self.only):
            # The same words for agents that exist and that do not.
            raise AccessDenied(
                f"this token does not open the agent {agent[:80]!r}",
                hint=f"leave agent out, or name {self.only}",
            )
        return Caller(agent=agent or self.only or self.default_agent, session_key=session_key)


class Doorkeeper:
    """Knows the tokens of one server."""

    def __init__(self, serve: Serve, *, default_agent: str) -> None:
        self._default_agent = default_agent
        #: (digest of the token, its name, the agent that it opens)
        self._known = [(_digest(serve.token), "token", "")] if serve.token else []
        self._known += [(_digest(token), f"tokens.{agent}", agent) for agent, token in serve.tokens.items()]

    def access(self, headers: Mapping[str, str], address: str) -> Access | None:
        """What a request with these headers may do; None without a token that is known."""
        if not self._known:
            return Access(client=address, only="", default_agent=self._default_agent)
        kind, _, token = headers.get("authorization", "").partition(" ")
        given = _digest(token.strip() if kind.lower() == "bearer" else "")
        found: Access | None = None
        for digest, name, agent in self._known:
            if hmac.compare_digest(given, digest):
                found = Access(client=name, only=agent, default_agent=self._default_agent)
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
