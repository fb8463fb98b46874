"""The context of a project for a model: sections from many sources, within a budget of tokens."""
