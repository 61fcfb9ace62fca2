"""Whole experiments as functions; the README's numbers are recipes."""
