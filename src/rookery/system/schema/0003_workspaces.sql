-- Ten ports for each workspace, from `first` on. A workspace is known by its own git folder.
CREATE TABLE port_ranges (
    workspace TEXT PRIMARY KEY,
    first INTEGER NOT NULL UNIQUE
) STRICT;
