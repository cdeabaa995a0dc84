"""Live tails of pages: the tickets that open them, and who may still look (docs/console.md).

The tail itself is the front end's (`frontend/push/tail_session.py`).
"""
