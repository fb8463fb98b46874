"""Files: atomic writes, access beneath a folder, watches, locks and paths."""
