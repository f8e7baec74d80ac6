"""The user interface that commands share: tables, progress, escaping, errors."""
