-- The audit has a file of its own, audit.db: see archive.py beside it, and docs/decisions/0036-audit.md.
-- A block is what was written at once. `first` is the number of its first record; numbers increase over all series.
-- `records` is JSON, and `link` a keyed hash of the block and of the link before it in its series.
CREATE TABLE blocks (
    first INTEGER PRIMARY KEY,
    series TEXT NOT NULL,
    count INTEGER NOT NULL,
    since REAL NOT NULL,
    until REAL NOT NULL,
    records BLOB NOT NULL,
    link BLOB NOT NULL
) STRICT;

-- Where the kept part of each series begins and ends. `removed` and `total` count records; `seal` is a keyed hash.
CREATE TABLE series (
    name TEXT PRIMARY KEY,
    removed INTEGER NOT NULL,
    start BLOB NOT NULL,
    total INTEGER NOT NULL,
    head BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT;

-- The settings in effect when changes were last looked for: hashes of their values.
CREATE TABLE settings (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
