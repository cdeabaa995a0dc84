"""The pages for people. No models and no writes of its own: it calls the selectors and actions of `api`."""
