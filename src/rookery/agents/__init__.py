"""OpenCode, one server in each workspace: brought here, wired to Rookery, started, watched and spoken to."""
