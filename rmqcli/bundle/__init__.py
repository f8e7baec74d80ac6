"""Archives for support cases: removes secrets from values, and writes the files."""
