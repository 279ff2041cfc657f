"""Users, their roles, tokens, secrets and quotas."""
