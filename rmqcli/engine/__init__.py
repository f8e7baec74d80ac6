"""The consumer engine. Its room; the decisions that come to live here stay pure."""
