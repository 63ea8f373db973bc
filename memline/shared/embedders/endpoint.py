"""Find a provider's address, key and headers in the settings."""

from __future__ import annotations

import json
import re
from binascii import b2a_base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from memline.shared.config.schema import AgentSettings, ProviderEntry, Remote
from memline.shared.embedders.protocol import canonical_digest
from memline.shared.errors import ConfigError
from memline.shared.providers import Provider
from memline.shared.sqlite import library, reading_foreign
from memline.shared.values import as_dict, as_text

#: Queries for the JSON of a store, by the place of its database below the state directory.
_STORES = (
    ("agents/{agent}/agent/openclaw-agent.sqlite", "SELECT store_json FROM auth_profile_store"),
    (
        "state/openclaw.sqlite",
        "SELECT value_json FROM config_machine_state WHERE state_key = 'authProfiles.store'",
    ),
)
_FILE = "agents/{agent}/agent/auth-profiles.json"


def saved_key(state_dir: Path, agent: str, providers: Sequence[str]) -> str:
    """Return the key that is saved for a provider of one of these names; empty when there is none.

    The agent's own profiles come before those of all agents. What cannot be read has no keys.
    """
    for text in _texts(state_dir, agent):
        with suppress(ValueError, RecursionError):
            for profile in map(as_dict, as_dict(as_dict(json.loads(text)).get("profiles")).values()):
                key = as_text(profile.get("key")).strip()
                if profile.get("type") == "api_key" and profile.get("provider") in providers and key:
                    return key
    return ""


def _texts(state_dir: Path, agent: str) -> Iterator[str]:
    for place, query in _STORES:
        path = state_dir / place.format(agent=agent)
        if path.is_file():
            # A release without such a table, or a damaged file, has none.
            with suppress(library().Error), reading_foreign(path) as connection:
                yield from [text for (text,) in connection.execute(query) if isinstance(text, str)]
    with suppress(OSError):
        yield (state_dir / _FILE.format(agent=agent)).read_text("utf-8", "replace")


#: Names of headers and of address parameters that hold credentials; they are not part of an identity.
_AUTH_LIKE = re.compile(r"auth|key|token|secret|cookie|password|credential|signature|session", re.IGNORECASE)

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One address of one provider, with what is sent to it besides the request."""

    provider: str
    #: In normal form, without user and password; may carry a query.
    base_url: str
    #: True for the provider's own service.
    public: bool
    key: str = ""
    #: Header of the key; in `authorization` it follows `Bearer`.
    key_header: str = "authorization"
    #: Extra headers, names in lower case, already merged; they win over ours.
    headers: Mapping[str, str] = {}
    #: Where keys are looked for, in words.
    key_places: str = ""

    def __repr__(self) -> str:
        # Its key and its headers stay out of every log and traceback.
        return f"Endpoint({self.provider!r}, {self.shown_url!r})"

    @property
    def digest(self) -> str:
        """Tell this address from others in an identity; empty for the public one. Holds no secret."""
        if self.public:
            return ""
        return canonical_digest([self.shown_url, sorted(self.extra_headers.items())])[:32]

    @property
    def extra_headers(self) -> dict[str, str]:
        """The configured headers that hold no credentials."""
        return {name: text for name, text in self.headers.items() if not _AUTH_LIKE.search(name)}

    @property
    def shown_url(self) -> str:
        """The address without credentials."""
        parts = urlsplit(self.base_url)
        query = [(name, value) for name, value in parse_qsl(parts.query) if not _AUTH_LIKE.search(name)]
        return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(sorted(query)), ""))

    @property
    def has_credentials(self) -> bool:
        """Whether there is a key, or a header in its place."""
        return bool(self.key or self.headers.keys() & {self.key_header, "authorization"})

    @property
    def key_hint(self) -> str:
        return f"check the {self.provider} key; it is looked for in {self.key_places}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """All that must never be shown: the key, the values of extra headers and those in the address."""
        values = [self.key, *self.headers.values()]
        values += [word for value in self.headers.values() for word in value.split()[1:]]
        values += [v for n, v in parse_qsl(urlsplit(self.base_url).query) if _AUTH_LIKE.search(n)]
        return tuple(value for value in values if value)

    @property
    def secrets_mark(self) -> str:
        """Tell whether the key or a header was changed: 32 bits of a digest, too few to find them by."""
        return canonical_digest([self.provider, self.base_url, *self.secrets])[:8]


def endpoint_of(provider: Provider, settings: AgentSettings, *, own: bool) -> Endpoint:
    """Make the endpoint of a provider: from `remote.*`, then the environment, then `models.providers`.

    For its own address also with the key that OpenClaw has saved, where its configuration is used.

    Without `own` the provider is a fallback: `remote.*` belongs to the first provider and is not handed on.
    """
    remote = settings.memory.remote if own else Remote()
    # Of several entries the first with a key: a key stays with its address.
    known = settings.content.models.providers
    entries = [known[name] for name in provider.entry_names if name in known]
    entry = next((entry for entry in entries if entry.api_key.strip()), (*entries, ProviderEntry())[0])
    entry_path = f"models.providers.{(provider.entry_names or (provider.name,))[0]}"
    where = "memorySearch.remote.baseUrl" if remote.base_url.strip() else f"{entry_path}.baseUrl"
    url = normal_url(remote.base_url.strip() or entry.base_url.strip() or provider.public_url, where=where)
    parts = urlsplit(url)
    user_info, _, host = parts.netloc.rpartition("@")
    path = parts.path
    if provider.foreign_path and f"{provider.foreign_path}/" in f"{path}/":
        path = path[: f"{path}/".index(f"{provider.foreign_path}/")].rstrip("/")
    base_url = urlunsplit((parts.scheme, host, path or provider.bare_path, parts.query, ""))
    environment_key = settings.environment_keys.get(provider.name, "")
    headers = {}
    if user_info:
        headers["authorization"] = "Basic " + b2a_base64(unquote(user_info).encode(), newline=False).decode()
    for more in (entry.headers, remote.headers):
        headers.update({name.strip().lower(): text for name, text in more.items()})
    key_places = [*provider.key_variables[:1], f"{entry_path}.apiKey"]
    key = remote.api_key.strip() or environment_key.strip() or entry.api_key.strip()
    if not key and settings.has_saved_keys and base_url == provider.public_url:
        # Saved for the provider itself: no other address gets it.
        key = saved_key(settings.state_dir, settings.agent, provider.entry_names)
        key_places.append("the auth profiles of OpenClaw")
    return Endpoint(
        provider=provider.name,
        base_url=base_url,
        public=base_url == provider.public_url,
        key=key,
        key_header=provider.key_header,
        headers=headers,
        key_places=", then ".join(["memorySearch.remote.apiKey", *key_places] if own else key_places),
    )


def normal_url(url: str, *, where: str = "baseUrl") -> str:
    """Normalise an address: host in lower case, no default port, no `/` or `/embeddings` at the end.

    Raises ConfigError, naming the setting `where`, for anything that is not an http address.
    """
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in _DEFAULT_PORTS and parts.hostname and (parts.port or 1)
    except ValueError:
        usable = False
    if not usable:
        # The address itself may hold a password, so it is not repeated.
        raise ConfigError(
            f"{where} is not a valid address", hint=f"set {where} to something like http://127.0.0.1:11434/v1"
        )
    user_info, _, host = parts.netloc.rpartition("@")
    host = host.lower().removesuffix(f":{_DEFAULT_PORTS[parts.scheme]}")
    path = parts.path.rstrip("/").removesuffix("/embeddings").rstrip("/")
    netloc = f"{user_info}@{host}" if user_info else host
    return urlunsplit((parts.scheme, netloc, path, parts.query, ""))
