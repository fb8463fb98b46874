-- What the scanner found in each definition, so that it is not scanned again. `rules` is the version of the scanner,
-- `report` is JSON, see guard/scan/reports.py.
CREATE TABLE scans (
    server TEXT NOT NULL,
    digest TEXT NOT NULL,
    rules TEXT NOT NULL,
    report BLOB NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (server, digest, rules)
) STRICT;
