"""Settings: their schema, and the layers that they are read from."""
