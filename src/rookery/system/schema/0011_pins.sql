-- The MCP servers whose definitions are pinned. `place` is empty for the user's own servers, and the main checkout of
-- the project for those of a repository; `program` tells apart what is approved or added under one name.
CREATE TABLE pinned_servers (
    name TEXT NOT NULL,
    place TEXT NOT NULL,
    program TEXT NOT NULL,
    at REAL NOT NULL,
    additions INTEGER NOT NULL DEFAULT 0,
    blocked INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (name, place, program)
) STRICT;

-- Their definitions: `pinned` ones are served, the `waiting` one is withheld until the user decides. `blocked` has no
-- digest and withholds every content. `content` is the definition as it was listed.
CREATE TABLE pins (
    name TEXT NOT NULL,
    place TEXT NOT NULL,
    program TEXT NOT NULL,
    kind TEXT NOT NULL,
    definition TEXT NOT NULL,
    digest TEXT NOT NULL,
    state TEXT NOT NULL,
    by TEXT NOT NULL,
    reason TEXT NOT NULL,
    version TEXT NOT NULL,
    at REAL NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (name, place, program, kind, definition, digest)
) STRICT;

-- When the pins did not fit their seal. Until the user has approved again, no server is pinned by itself.
CREATE TABLE pin_losses (
    at REAL PRIMARY KEY
) STRICT;
