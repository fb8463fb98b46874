-- The port of each workspace's agent. A workspace is known by its own git folder.
CREATE TABLE agent_ports (
    workspace TEXT PRIMARY KEY,
    port INTEGER NOT NULL UNIQUE
) STRICT;
