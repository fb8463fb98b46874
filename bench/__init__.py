"""Measurements with limits: `python -m bench [NAME]`. Each `bench/<name>.py` with a function `run` is one bench."""
