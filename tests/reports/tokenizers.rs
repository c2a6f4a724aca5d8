//! Vocabularies and how they split text.
