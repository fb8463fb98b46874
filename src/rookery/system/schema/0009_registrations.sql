-- Each main checkout that was ever registered, by its real path. It stays when the project is removed: only a first
-- registration approves what the checkout holds.
CREATE TABLE registrations (
    place TEXT PRIMARY KEY,
    at REAL NOT NULL
) STRICT;
INSERT INTO registrations SELECT path, added FROM projects;

-- When the approvals did not fit their seal. From then on nobody knows which projects were registered before.
CREATE TABLE approval_losses (
    at REAL PRIMARY KEY
) STRICT;

-- How an approval was given: 'terminal', 'adding', or nothing for those of earlier versions.
ALTER TABLE approvals ADD COLUMN by TEXT NOT NULL DEFAULT '';
