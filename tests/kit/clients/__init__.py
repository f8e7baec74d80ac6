"""Clients of proxies in processes of their own: official ones in Java, Python, Node.js,
and ours."""
