"""The REST routes and the event stream."""
