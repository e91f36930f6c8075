"""The papers' claims (docs/claims.md): frozen settings, measures, and the figures of all rows."""
