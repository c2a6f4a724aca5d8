//! Whole screens, key scripts and arbitrary keys at arbitrary sizes.
