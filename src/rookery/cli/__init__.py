"""The command line. Modules here import only click and the standard library when they are imported."""
