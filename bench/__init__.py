"""Figures that Rookery has to reach: `python -m bench [NAME]`. Each `bench/<name>.py` with a `run()` is one set."""
