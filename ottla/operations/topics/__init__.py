"""Topics as an administrator works with them: seen whole, copied, compared, analyzed."""
