"""Search among the tools of a view."""
