"""The checks of `rookery doctor`."""
