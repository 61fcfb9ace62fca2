"""The checks of bare encodings."""
