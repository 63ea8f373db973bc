"""When a session is flushed, and what of an entry is new in its note."""

import json
from pathlib import Path

import pytest

from memline.shared.config.schema import (
    AgentDefaults,
    AgentsBlock,
    AgentSettings,
    Compaction,
    ConfigFile,
    MemoryFlush,
    ModelsBlock,
    ProviderEntry,
)
from memline.shared.errors import ProviderBrokenAnswer, ProviderStop
from memline.shared.flush.flush import endpoint_of, kept, new_lines, threshold_in, tokens_in


@pytest.mark.parametrize(("window", "threshold"), [(200_000, 176_000), (16_384, 4_000), (0, 0)])
def test_the_reserve_and_the_soft_threshold_leave_room_in_a_small_window(window, threshold):
    assert threshold_in(Compaction(), window) == threshold


def line(role, text, **more):
    return json.dumps({"type": "message", "message": {"role": role, "content": text, **more}}).encode()


USAGE = {"input": 900, "output": 60, "cacheRead": 40}


def test_the_last_count_of_the_provider_and_an_estimate_of_what_came_after_it():
    lines = [
        line("user", "u " * 9_000),
        line("assistant", "a" * 40, usage=USAGE),
        line("toolResult", "r " * 2_000),
        line("assistant", [{"type": "thinking", "thinking": "t " * 2_000, "signature": "s" * 40_000}]),
    ]

    assert 1_000 + 2_000 <= tokens_in(lines) <= 1_000 + 2_150
    # An answer that was broken off has no usable count.
    assert tokens_in([line("assistant", "a" * 40, usage=USAGE, stopReason="error")]) < 100


@pytest.mark.parametrize(
    ("note", "entry", "added"),
    [
        ("", "## S\n- Ada moves to Oslo\n- Tea", "## S\n- Ada moves to Oslo\n- Tea"),
        ("## S\n- Ada moves to Oslo\n", "## S\n* ada  moves to Oslo\n- Rent is due", "\n## S\n- Rent is due"),
        ("- Rent is due\n", "## S\n\n- Rent is due", ""),
        (
            "- Rent\n  - status: done\n",
            "- Rent\n  - status: done\n- Car\n  - status: done",
            "\n- Car\n  - status: done",
        ),
        ("ls\n", "- a\n```sh\nls\n\nls\n```\n- b", "\n- a\n```sh\nls\n\nls\n```\n- b"),
        *(("", entry, "") for entry in ("", "\n\n", "# Heading", "- \n* \n---", "```\n```")),
    ],
)
def test_of_an_entry_the_note_gets_the_items_that_it_does_not_have(note, entry, added):
    assert new_lines(note, entry) == added


KEYS = {"openai": "sk-of-openai", "mistral": "of-mistral"}
PROXY = ProviderEntry(base_url="http://proxy:4000/v1", api_key="of-proxy", headers={"X-Team": "a"})


def settings(providers=None, **flush):
    return AgentSettings(
        agent="main",
        workspace=Path("/ws"),
        index_path=Path("/i"),
        state_dir=Path("/s"),
        content=ConfigFile(
            agents=AgentsBlock(
                defaults=AgentDefaults(compaction=Compaction(memory_flush=MemoryFlush(**flush)))
            ),
            models=ModelsBlock(providers=providers or {}),
        ),
        environment_keys=KEYS,
    )


@pytest.mark.parametrize(
    ("model", "more", "expected"),
    [
        ("gpt-5-mini", {}, ("https://api.openai.com/v1", "gpt-5-mini", "sk-of-openai")),
        ("openai/gpt-5-mini", {}, ("https://api.openai.com/v1", "gpt-5-mini", "sk-of-openai")),
        ("mistral/small", {}, ("https://api.mistral.ai/v1", "small", "of-mistral")),
        ("ollama/qwen3:8b", {}, ("http://127.0.0.1:11434/v1", "qwen3:8b", "")),
        ("proxy/team/model", {}, ("http://proxy:4000/v1", "team/model", "of-proxy")),
        # A configured address takes the name unchanged, and no other place's key.
        ("proxy/m", {"base_url": "http://own/v1"}, ("http://own/v1", "proxy/m", "")),
    ],
)
def test_a_model_is_asked_where_it_is_with_the_key_of_that_place(model, more, expected):
    endpoint, name = endpoint_of(settings({"proxy": PROXY}, model=model, **more))

    assert (endpoint.base_url, name, endpoint.key) == expected
    assert ("x-team" in endpoint.headers) is (endpoint.base_url == "http://proxy:4000/v1")


def test_openclaws_own_address_of_ollama_gets_the_path_of_the_protocol():
    bare = ProviderEntry(base_url="http://gpu:11434")

    endpoint, _ = endpoint_of(settings({"ollama": bare}, model="ollama/qwen3:8b"))

    assert endpoint.base_url == "http://gpu:11434/v1"


def test_a_conversation_is_sent_nowhere_by_a_guess():
    with pytest.raises(ProviderStop) as caught:
        endpoint_of(settings(model="anthropic/claude-opus"))

    assert "models.providers.anthropic has no address" in caught.value.message
    assert "memoryFlush.baseUrl" in caught.value.hint


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("NO_REPLY", ""),
        ("  **NO_REPLY**\nnothing happened", ""),
        ("", ""),
        ("```\nNO_REPLY\n```", ""),
        ("- a fact\n- another\n", "- a fact\n- another"),
        ("```markdown\n- a fact\n```", "- a fact"),
        ("- a fact\n\nNO_REPLY.", "- a fact"),
        ("- NO_REPLYING is a word", "- NO_REPLYING is a word"),
        ("no_reply", ""),
        ("NO REPLY.", ""),
        ('"NO_REPLY"', ""),
        ("NO_REPLY - nothing durable here.", ""),
        ('{"action": "NO_REPLY"}', ""),
        ("- No reply from Bob yet", "- No reply from Bob yet"),
        ("- Ada 喜欢茶\n\n**NO_REPLY**", "- Ada 喜欢茶"),
        ("喜欢茶 NO_REPLY", "喜欢茶"),
        ("- a fact\n\n> **\"'`NO_REPLY`'\"**", "- a fact\n\n>"),
    ],
)
def test_an_answer_is_read_as_what_is_to_be_kept(answer, words):
    assert kept(answer) == words


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("<think>\nAda moves.\n</think>\n\n- Ada moves", "- Ada moves"),
        ("Ada moves.</think>- Ada moves", "- Ada moves"),
        ("<Thinking>a</thinking>\n<think>b</think>NO_REPLY", ""),
        ("- a <think> tag is HTML", "- a <think> tag is HTML"),
        ("- a\n<think>b</think>\n- c", "- a\n\n- c"),
        ("- a\n<think>b</think>", "- a"),
        ("<think>b\n</think> is its end\n</think>\n- a", "- a"),
        ("- a\n- we cut <think>…</think>\n- c", "- a\n- we cut <think>…</think>\n- c"),
        ("- a\n- cut at `</think>`\n- c", "- a\n- cut at `</think>`\n- c"),
    ],
)
def test_thoughts_of_a_model_are_not_its_answer(answer, text):
    assert kept(answer) == text


@pytest.mark.parametrize("answer", ["<think>First, let me see", "<think>a</think>\n<think>Then, let me see"])
def test_an_answer_may_end_in_the_middle_of_a_thought(answer):
    with pytest.raises(ProviderBrokenAnswer):
        kept(answer)
