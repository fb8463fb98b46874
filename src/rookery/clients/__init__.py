"""The programs that connect to Rookery: where each keeps its servers, and how it writes one down."""
