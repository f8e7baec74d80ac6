"""One typed call per request code, the client that carries calls out, the route cache."""
