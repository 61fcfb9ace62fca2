"""Other libraries through their adapters."""
