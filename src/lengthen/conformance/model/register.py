"""The register of the checks of whole models."""

from .check import Check, registering

CHECKS: list[Check] = []
"""In the order in which they run."""
model_check = registering(CHECKS)
