from __future__ import annotations

import pytest

from memline.shared.config import environment
from memline.shared.errors import ConfigError


def test_an_empty_variable_counts_as_not_set() -> None:
    assert environment.value({"A": "  "}, "A") == ""
    assert environment.provider_keys({"OPENAI_API_KEY": ""}) == {}


def test_only_a_leading_tilde_is_the_home_directory() -> None:
    env = {"HOME": "/h"}

    assert environment.expand_user("~", env) == "/h"
    assert environment.expand_user("~/a", env) == "/h/a"
    assert environment.expand_user("/a/~/b", env) == "/a/~/b"
    assert environment.expand_user("~other/a", env) == "~other/a"


def test_references_are_replaced_and_missing_ones_named() -> None:
    missing: list[str] = []
    text = environment.expand("${A}-${B}-$${A}-$A", {"A": "1"}, missing)

    assert (text, missing) == ("1--${A}-$A", ["B"])


def test_the_log_is_quiet_text_by_default() -> None:
    assert environment.log_options({}) == ("WARNING", "text")
    assert environment.log_options({"MEMLINE_LOG_LEVEL": "debug", "MEMLINE_LOG_FORMAT": "JSON"}) == (
        "DEBUG",
        "json",
    )


@pytest.mark.parametrize("env", [{"MEMLINE_LOG_LEVEL": "loud"}, {"MEMLINE_LOG_FORMAT": "xml"}])
def test_a_log_option_that_does_not_exist_is_an_error(env: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        environment.log_options(env)

    assert next(iter(env)) in caught.value.message
