"""The programs that connect to Rookery: the config file of each, and the form of a server's entry in it."""
