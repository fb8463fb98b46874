-- For which projects (by id), workspaces (by folder) and sessions (by id) the owner has switched boulder on or off.
CREATE TABLE boulder_switches (
    level TEXT NOT NULL,
    subject TEXT NOT NULL,
    enabled INTEGER NOT NULL,
    checks TEXT,
    at REAL NOT NULL,
    PRIMARY KEY (level, subject)
) STRICT;

-- What is known of each session that it looks after, as JSON.
CREATE TABLE boulder_sessions (
    session TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    kept TEXT NOT NULL,
    at REAL NOT NULL
) STRICT;

-- Every enforcement, and whatever the owner has asked for.
CREATE TABLE boulder_log (
    number INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    what TEXT NOT NULL,
    who TEXT NOT NULL,
    session TEXT NOT NULL,
    workspace TEXT NOT NULL,
    iteration INTEGER NOT NULL,
    why TEXT NOT NULL
) STRICT;
