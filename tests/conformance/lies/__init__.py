"""Models that lie in one respect, and the check that must catch each."""
