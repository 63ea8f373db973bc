import pytest

from memline.shared.config.load import Options, load
from memline.shared.errors import IndexUnwritable
from memline.shared.queue.broker import MESSAGE_RETRIES, is_retried
from memline.shared.queue.messages import KINDS, MessageRefused
from memline.shared.queue.routes import needed_roles


@pytest.mark.parametrize(
    ("name", "tries", "error", "is_tried_again"),
    [
        ("store_files", 0, OSError("disk full"), True),
        ("store_files", MESSAGE_RETRIES, OSError("disk full"), False),
        ("store_files", MESSAGE_RETRIES, IndexUnwritable("the disk is full"), False),
        ("store_files", 0, MessageRefused("another version"), False),
        # An answer that was paid for waits for the disk, however long.
        ("store_vectors", 1_000, IndexUnwritable("the disk is full"), True),
    ],
)
def test_a_message_is_tried_again_when_that_may_help(name, tries, error, is_tried_again):
    assert is_retried(KINDS[name], tries, error) is is_tried_again


@pytest.mark.parametrize(
    ("settings", "roles"),
    [
        ("provider: 'none'", ("chunk", "store", "query")),
        (
            "provider: 'openai', remote: {apiKey: 'k', batch: {enabled: true}}",
            ("chunk", "embed", "batch", "store", "query"),
        ),
    ],
    ids=["no provider", "batches"],
)
def test_a_role_is_needed_where_the_configuration_uses_it(tmp_path, settings, roles):
    config = tmp_path / "config.json5"
    config.write_text(f"{{agents: {{defaults: {{memorySearch: {{{settings}}}}}}}}}", "utf-8")
    agent = load(Options(config=config, workspace=tmp_path), {"HOME": str(tmp_path)}).agent()

    assert needed_roles([agent]) == roles
