"""One function per request code, by area: each returns a `Call`."""
