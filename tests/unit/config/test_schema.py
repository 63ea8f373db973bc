from dataclasses import replace
from pathlib import Path

import pytest

from memline.shared.config.installation import QueueSettings
from memline.shared.config.keys import mask_url
from memline.shared.config.schema import AgentSettings, Chunking, MemorySearch, ProviderEntry, Remote


def test_repr_of_an_agent_shows_no_secret() -> None:
    settings = AgentSettings(
        agent="main",
        workspace=Path("/w"),
        index_path=Path("/i"),
        state_dir=Path("/s"),
        memory=MemorySearch(remote=Remote(api_key="hush1", headers={"X-Token": "hush2"})),
        providers={"openai": ProviderEntry(api_key="hush3", base_url="https://me:hush4@host/v1")},
        environment_keys={"openai": "hush5"},
    )

    text = repr(settings)

    assert "hush" not in text
    assert "X-Token" in text
    assert "host/v1" in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://:pw@h:6379/0", "redis://***@h:6379/0"),
        ("redis://user:p/w@h", "redis://***@h"),
        ("https://h/v1?key=abc&x=1", "https://h/v1?key=***&x=***"),
        ("user:pw@h", "***@h"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert mask_url(url) == shown


def test_repr_of_the_queue_shows_its_host_only() -> None:
    assert repr(QueueSettings(url="redis://:pw@h/0")) == "QueueSettings(url='redis://***@h/0', name='')"


def test_blocks_compare_and_hash_by_their_fields() -> None:
    assert Chunking(tokens=5) == Chunking(tokens=5)
    assert Chunking(tokens=5) != Chunking(tokens=6)
    assert Chunking() != QueueSettings()
    assert len({Chunking(tokens=5), replace(Chunking(), tokens=5)}) == 1


def test_a_block_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Chunking().tokens = 1  # type: ignore[misc]
