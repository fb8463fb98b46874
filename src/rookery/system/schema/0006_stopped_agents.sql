-- Workspaces in which no agent is to run until somebody starts one. A workspace is known by its own git folder, and by
-- when it was made: a later one may get the same folder.
CREATE TABLE stopped_agents (
    workspace TEXT PRIMARY KEY,
    made INTEGER NOT NULL
) STRICT;
