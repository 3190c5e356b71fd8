"""Accounts: where they are listed, and how their passwords are had."""
