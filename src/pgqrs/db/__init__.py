"""The database seam: the only folder with SQL in it."""
