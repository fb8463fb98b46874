"""Delete workspaces into the trash, restore them, and empty the trash."""
