"""The user's permissions: approvals of content of repositories, and rules for tools."""
