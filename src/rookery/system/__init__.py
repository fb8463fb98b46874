"""The only code that touches OS primitives: clock, ids, processes, files, locks, SQLite, logging, tasks."""
