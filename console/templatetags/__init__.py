"""Django's template tags of the console."""
