"""The conformance suite on every registered method."""
