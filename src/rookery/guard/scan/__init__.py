"""The scanner: find tool poisoning in the definitions of servers, offline and without a model."""
