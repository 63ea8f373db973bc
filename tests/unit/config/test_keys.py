import pytest

from memline.shared.config.check import fit
from memline.shared.config.installation import ChatRule, PriceEntry
from memline.shared.config.keys import build, default_of, json_name, leaves
from memline.shared.config.schema import AgentEntry, ConfigFile, ExtraPath, MemorySearch, ProviderEntry


@pytest.mark.parametrize(
    ("attribute", "name"),
    [
        ("max_results", "maxResults"),
        ("lambda_", "lambda"),
        ("url", "url"),
        ("half_life_days", "halfLifeDays"),
    ],
)
def test_attributes_have_the_camel_case_name_of_the_file(attribute: str, name: str) -> None:
    assert json_name(attribute) == name


@pytest.mark.parametrize(
    "block", [MemorySearch, ConfigFile, AgentEntry, ProviderEntry, PriceEntry, ExtraPath, ChatRule]
)
def test_every_leaf_has_a_checked_type_limits_and_words(block: type) -> None:
    for path, field in leaves(block):
        assert field.metadata.get("of") or fit(None, str(field.type), field.metadata)[1], path
        assert field.metadata["doc"], path


def test_a_block_is_built_from_dotted_paths() -> None:
    memory = build(MemorySearch, {"query.hybrid.mmr.lambda": 0.1, "model": "m"})

    assert memory.query.hybrid.mmr.lambda_ == 0.1
    assert memory.model == "m"
    assert memory.query.max_results == 6


def test_built_from_its_own_defaults_a_block_is_the_default_block() -> None:
    defaults = {path: default_of(field) for path, field in leaves(MemorySearch)}

    assert build(MemorySearch, defaults) == MemorySearch() == build(MemorySearch, {})
