-- Give each mode of a provider a breaker.

ALTER TABLE providers RENAME TO providers_m001;

CREATE TABLE providers (
    name TEXT NOT NULL,
    mode TEXT NOT NULL CHECK (mode IN ('requests', 'batch')),
    state TEXT NOT NULL DEFAULT 'closed' CHECK (state IN ('closed', 'open', 'half_open')),
    reason TEXT NOT NULL DEFAULT '',
    action TEXT NOT NULL DEFAULT '',
    failures INTEGER NOT NULL DEFAULT 0,
    hold_until REAL NOT NULL DEFAULT 0,
    since REAL NOT NULL DEFAULT 0,
    probe_at REAL NOT NULL DEFAULT 0,
    opens INTEGER NOT NULL DEFAULT 0,
    probe TEXT NOT NULL DEFAULT '',
    by_hand INTEGER NOT NULL DEFAULT 0,
    max_rows INTEGER NOT NULL DEFAULT 0,
    max_tokens INTEGER NOT NULL DEFAULT 0,
    updated_at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (name, mode)
) STRICT;

INSERT INTO providers (name, mode, state, reason, action, failures, hold_until, since, probe_at, opens,
                       max_rows, max_tokens, updated_at)
    SELECT name, 'requests', CASE state WHEN 'paused' THEN 'open' ELSE 'closed' END, reason, action, failures,
           hold_until, CASE state WHEN 'paused' THEN updated_at ELSE 0 END, updated_at, state = 'paused',
           max_rows, max_tokens, updated_at
    FROM providers_m001;

DROP TABLE providers_m001;
