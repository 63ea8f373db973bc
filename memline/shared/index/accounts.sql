-- What a home knows of its provider accounts. An account is `<provider>:<mark>`; the mark is 32 bits of a digest
-- of address and secrets, never a secret.

-- How an account does with a model in a mode: its breaker, and what it taught about the size of requests (`health.py`).
CREATE TABLE IF NOT EXISTS health (
    account TEXT NOT NULL,
    model TEXT NOT NULL,
    mode TEXT NOT NULL CHECK (mode IN ('requests', 'batch')),
    failures INTEGER NOT NULL,
    opens INTEGER NOT NULL,
    retry_at REAL NOT NULL,
    reason TEXT NOT NULL,
    action TEXT NOT NULL,
    max_rows INTEGER NOT NULL,
    full_answers INTEGER NOT NULL,
    PRIMARY KEY (account, model, mode)
) STRICT;

-- From when on the next call of an account and model (`<account> <model>`) may go, a row a unit (`scheduling/limits.py`);
-- `hold` is a cooldown.
CREATE TABLE IF NOT EXISTS limits (
    account TEXT NOT NULL,
    unit TEXT NOT NULL,
    next_at REAL NOT NULL,
    PRIMARY KEY (account, unit)
) STRICT, WITHOUT ROWID;

-- What was spent, a row a day (UTC), account, model and mode (requests, batch, questions): calls or batches that were
-- perhaps paid for, their tokens, and what they cost by the price that was known (NULL: none was). What is in flight
-- counts with estimated tokens.
CREATE TABLE IF NOT EXISTS spending (
    day TEXT NOT NULL,
    account TEXT NOT NULL,
    model TEXT NOT NULL,
    mode TEXT NOT NULL,
    requests INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cost REAL,
    PRIMARY KEY (day, account, model, mode)
) STRICT;

-- Sessions that were forgotten, by their paths in the ledger: they are never read again, whatever index there is.
CREATE TABLE IF NOT EXISTS forgotten_sessions (
    agent TEXT NOT NULL,
    path TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (agent, path)
) STRICT, WITHOUT ROWID;

-- How many texts an index, by the path of its file, had embedded in all and how many were pending, in a minute of the epoch
-- in which that changed (`scheduling/minutes.py`).
CREATE TABLE IF NOT EXISTS minutes (
    path TEXT NOT NULL,
    minute INTEGER NOT NULL,
    embedded INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    PRIMARY KEY (path, minute)
) STRICT, WITHOUT ROWID;
