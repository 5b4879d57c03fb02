"""Types of trainers that are not on PyPI, copied by shape: field names, defaults, and
what the trainer computes from them, in our own words. Each file names its source."""
