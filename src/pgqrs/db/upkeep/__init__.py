"""The store as a whole: retention, invariants, diagnostics, promotion, imports."""
