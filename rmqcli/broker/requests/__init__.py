"""What the broker does for each request: one file for a request or a family of them."""
