-- Workspaces are known by their own git folders; `made` tells one from an earlier one of the same name.
CREATE TABLE workspace_tokens (
    workspace TEXT PRIMARY KEY,
    made INTEGER NOT NULL,
    token TEXT NOT NULL UNIQUE
) STRICT;

-- Those that are open.
CREATE TABLE open_workspaces (
    workspace TEXT PRIMARY KEY,
    made INTEGER NOT NULL
) STRICT;
