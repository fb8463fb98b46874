"""The operations of the toolset `project`: the files, the context and the tasks of a workspace."""
