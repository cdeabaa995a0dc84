"""Settings: `environment.py` reads and checks the environment once; `project.py` is Django's settings module."""
