//! Where models, prompts and recordings lie, and how they are written.
