"""A workspace's files for those who may see nothing else: the sandbox, reading and listing."""
