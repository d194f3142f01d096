"""Who sends a request: the endpoint's own token, named tokens, tokens of an identity provider, client certificates."""
