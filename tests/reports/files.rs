//! What a file is, and whether it runs.
