"""What the user has allowed: approvals of what a repository brings along, and rules about tools."""
