"""The gateway: catalogs of providers, public names, the views that clients see, and the path of a call."""
