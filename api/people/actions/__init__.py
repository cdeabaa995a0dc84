"""Every write to people's rows. Lock order: account, its life, memberships, invitations; person, then what is theirs.

One action is one transaction with its entries of the audit trail. Attempts are counted before it (`rates.py`),
passwords are hashed outside it, mails are errands left after its commit.
"""
