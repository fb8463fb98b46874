"""OpenCode: its install, configs, process, HTTP API and events."""
