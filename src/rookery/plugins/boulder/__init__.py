"""Boulder: prompts a session that has stopped with work left to go on."""
