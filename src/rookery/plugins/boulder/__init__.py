"""Boulder: a session that has stopped with work left is told to go on."""
