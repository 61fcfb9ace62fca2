"""Tables and pages that a person looks at."""
