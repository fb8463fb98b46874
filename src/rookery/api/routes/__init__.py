"""The REST routes, by resource."""
