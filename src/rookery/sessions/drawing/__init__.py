"""Pictures of screens."""
