"""The composition root: settings, start order, single instance, runtime file, shutdown."""
