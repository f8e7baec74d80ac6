"""A cluster in this process, and a read-only view of a broker's folder."""
