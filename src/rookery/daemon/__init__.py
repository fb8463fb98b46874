"""The composition root of the daemon: settings, start order, single instance, runtime file, shutdown."""
