"""The operations of the guard: approvals, pins and the audit."""
