//! Figures of attached servers.
