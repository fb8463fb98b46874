"""The rules of the scanner, by what they look for."""
