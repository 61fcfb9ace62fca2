"""One file per published method. Every file here is discovered by the registry."""
