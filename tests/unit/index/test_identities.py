"""An identity has one row, whatever address it is reached at."""

from memline.shared.index import identities
from tests.support.index_rows import MODEL_A, MODEL_B


def test_an_identity_keeps_its_row_and_takes_the_newest_address(writer):
    first = identities.ensure(writer.connection, MODEL_A, base_url="http://one")
    again = identities.ensure(writer.connection, MODEL_A, base_url="http://two")

    assert again.id == first.id
    assert again.base_url == "http://two"
    assert identities.by_id(writer.connection, first.id) == again
    assert identities.by_key(writer.connection, MODEL_B.key) is None


def test_the_target_is_searched_at_once_while_there_are_no_vectors(writer):
    assert identities.active(writer.connection) is None

    writer.retarget(MODEL_A)

    assert identities.active(writer.connection) == identities.target(writer.connection)
