"""Pins: the recorded definitions of servers, and what is withheld because it differs from them."""
