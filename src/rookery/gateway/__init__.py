"""What every client sees of every provider: catalogs, names, views, and the way of a call."""
