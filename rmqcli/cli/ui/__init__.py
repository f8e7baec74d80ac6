"""What commands share in talking to people: tables, progress, escaping, errors."""
