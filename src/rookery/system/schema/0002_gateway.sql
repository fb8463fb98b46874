-- What the user has approved, by content: a name may have several, one for each content that was approved.
CREATE TABLE approvals (
    kind TEXT NOT NULL,
    place TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    content TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (kind, place, name, digest)
) STRICT;

-- Servers and tools that were switched on or off while running, for a project, a workspace or a session.
CREATE TABLE switches (
    level TEXT NOT NULL,
    subject TEXT NOT NULL,
    pattern TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (level, subject, pattern)
) STRICT;
