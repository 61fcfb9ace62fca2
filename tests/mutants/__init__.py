"""Planted bugs: each must turn its check red."""
