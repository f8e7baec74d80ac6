"""Which messages a subscription wants: tags and SQL92."""
