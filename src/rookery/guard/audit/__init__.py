"""The audit: who called which tool when, and what the user decided."""
