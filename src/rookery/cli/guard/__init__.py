"""`rookery guard`: approvals, and what the definitions of servers hold."""
