-- The port of each workspace's MCP server. A workspace is known by its own git folder.
CREATE TABLE endpoint_ports (
    workspace TEXT PRIMARY KEY,
    port INTEGER NOT NULL UNIQUE
) STRICT;
