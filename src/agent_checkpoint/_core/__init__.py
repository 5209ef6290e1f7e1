"""What bytes mean. Pure: no file, no clock, no randomness, nothing from outside the package."""
