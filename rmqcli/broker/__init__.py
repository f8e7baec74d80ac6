"""The embedded cluster. Its room; nothing lives here yet."""
