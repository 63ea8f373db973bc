"""Where a provider is and how to get in: address, key and headers out of the settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field, replace
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from shared.config.schema import AgentSettings, ProviderEntry
from shared.embedders.catalog import Provider
from shared.errors import ConfigError
from shared.values import value

#: Names of headers and of address parameters that let somebody in; they are no part of an identity.
_AUTH_LIKE = re.compile(r"auth|key|token|secret|cookie|password|credential|signature|session", re.IGNORECASE)

_DEFAULT_PORTS = {"http": 80, "https": 443}


@value
class Endpoint:
    """One address of one provider, with what is sent to it besides the request."""

    provider: str
    #: In normal form, without user and password; may carry a query.
    base_url: str
    #: True for the provider's own service.
    public: bool
    key: str = field(default="", repr=False)
    #: Header of the key; in `authorization` it stands behind `Bearer`.
    key_header: str = "authorization"
    #: Extra headers, names in lower case, already merged; they win over ours.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Where keys are looked for, in words.
    key_places: str = ""

    @property
    def digest(self) -> str:
        """What tells this address from others in an identity; empty for the public one. No secret goes in."""
        if self.public:
            return ""
        headers = sorted((n, v) for n, v in self.headers.items() if not _AUTH_LIKE.search(n))
        import hashlib

        canonical = json.dumps([self.shown_url, headers], separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:32]

    @property
    def shown_url(self) -> str:
        """The address without anything that lets somebody in."""
        parts = urlsplit(self.base_url)
        query = [(name, value) for name, value in parse_qsl(parts.query) if not _AUTH_LIKE.search(name)]
        return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode(sorted(query)), ""))

    @property
    def opens(self) -> bool:
        """Whether there is anything to get in with: a key, or a header in its place."""
        return bool(self.key or self.headers.keys() & {self.key_header, "authorization"})

    @property
    def key_hint(self) -> str:
        return f"check the {self.provider} key; it is looked for in {self.key_places}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Whatever must never be shown: the key, the values of extra headers and those in the address."""
        values = [self.key, *self.headers.values()]
        values += [word for value in self.headers.values() for word in value.split()[1:]]
        values += [v for n, v in parse_qsl(urlsplit(self.base_url).query) if _AUTH_LIKE.search(n)]
        return tuple(value for value in values if value)

    @property
    def secrets_mark(self) -> str:
        """Tells whether the key or a header was changed: 32 bits of a digest, too few to find them by."""
        import hashlib

        canonical = json.dumps([self.provider, self.base_url, *self.secrets], separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8", "replace")).hexdigest()[:8]


def primary_endpoint(provider: Provider, settings: AgentSettings) -> Endpoint:
    """The endpoint of the configured provider: `remote.*`, then the environment, then `models.providers`."""
    remote = settings.memory.remote
    endpoint = _endpoint(provider, settings, remote.base_url, remote.api_key, remote.headers)
    return replace(endpoint, key_places=f"memorySearch.remote.apiKey, then {endpoint.key_places}")


def fallback_endpoint(provider: Provider, settings: AgentSettings) -> Endpoint:
    """The endpoint of a fallback: `remote.*` belongs to the first provider and is not handed on."""
    return _endpoint(provider, settings, "", "", {})


def _endpoint(
    provider: Provider, settings: AgentSettings, base_url: str, key: str, headers: Mapping[str, str]
) -> Endpoint:
    entry = _entry(provider, settings)
    where = "memorySearch.remote.baseUrl" if base_url.strip() else f"{_entry_path(provider)}.baseUrl"
    url = normal_url(base_url.strip() or entry.base_url.strip() or provider.public_url, where=where)
    normal, user_info = _split_user(_with_own_path(provider, url))
    found = key.strip() or settings.environment_keys.get(provider.name, "").strip() or entry.api_key.strip()
    merged = {"authorization": _basic(user_info)} if user_info else {}
    for more in (entry.headers, headers):
        merged.update({name.strip().lower(): value for name, value in more.items()})
    return Endpoint(
        provider=provider.name,
        base_url=normal,
        public=normal == provider.public_url,
        key=found,
        key_header=provider.key_header,
        headers=merged,
        key_places=", then ".join(filter(None, [provider.key_variable, f"{_entry_path(provider)}.apiKey"])),
    )


def _entry(provider: Provider, settings: AgentSettings) -> ProviderEntry:
    """The entry of the provider; of several the first with a key, whole: a key stays with its address."""
    entries = [settings.providers[name] for name in provider.entry_names if name in settings.providers]
    with_key = (entry for entry in entries if entry.api_key.strip())
    return next(with_key, entries[0] if entries else ProviderEntry())


def _entry_path(provider: Provider) -> str:
    return f"models.providers.{(provider.entry_names or (provider.name,))[0]}"


def normal_url(url: str, *, where: str = "baseUrl") -> str:
    """One spelling of an address: host in lower case, no default port, no `/` or `/embeddings` at the end.

    Raises ConfigError, naming the setting `where`, for anything that is no http address.
    """
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in _DEFAULT_PORTS and parts.hostname and (parts.port or 1)
    except ValueError:
        usable = False
    if not usable:
        # The address itself may hold a password, so it is not repeated.
        raise ConfigError(
            f"{where} is not an address", hint=f"set {where} to something like http://127.0.0.1:11434/v1"
        )
    user_info, _, host = parts.netloc.rpartition("@")
    host = host.lower().removesuffix(f":{_DEFAULT_PORTS[parts.scheme]}")
    path = parts.path.rstrip("/").removesuffix("/embeddings").rstrip("/")
    netloc = f"{user_info}@{host}" if user_info else host
    return urlunsplit((parts.scheme, netloc, path, parts.query, ""))


def _with_own_path(provider: Provider, url: str) -> str:
    """The address with the path of the protocol that is spoken to this provider."""
    parts = urlsplit(url)
    path = parts.path
    if provider.foreign_path and f"{provider.foreign_path}/" in f"{path}/":
        path = path[: f"{path}/".index(f"{provider.foreign_path}/")].rstrip("/")
    return urlunsplit(parts._replace(path=path or provider.bare_path))


def _split_user(url: str) -> tuple[str, str]:
    """The address without `user:password@`, and that part."""
    parts = urlsplit(url)
    user_info, _, host = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, host, parts.path, parts.query, "")), user_info


def _basic(user_info: str) -> str:
    from base64 import b64encode
    from urllib.parse import unquote

    return "Basic " + b64encode(unquote(user_info).encode()).decode()
