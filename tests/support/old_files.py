"""Files as an older release left them."""

from contextlib import closing
from pathlib import Path

from memline.shared.index import driver
from memline.shared.sqlite import statements

FIXTURES = Path(__file__).parents[1] / "fixtures"

#: What 0.2.0 left: the index of an agent, and the account file of its home; rows of every kind.
INDEX, ACCOUNTS = FIXTURES / "index_0_2.sql", FIXTURES / "accounts_0_2.sql"


def make(path: Path, dump: Path, *more: str) -> Path:
    """Make a database of a dump and of further statements."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(driver.library().connect(str(path), isolation_level=None)) as connection:
        for statement in (*statements(dump), *more):
            connection.execute(statement)
    return path
