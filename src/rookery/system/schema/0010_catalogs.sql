-- What each server offered when it was last listed, for the first list after a start, and the era that it speaks.
-- `digest` covers program and credentials; `listed` is JSON, see upstreams/catalog_store.py.
CREATE TABLE catalogs (
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    directory TEXT NOT NULL,
    listed BLOB NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (name, digest, directory)
) STRICT;
