//! How things look: colours and text styles by meaning, marks and colours of a token's fate, how an answer is displayed.

pub(crate) mod display;
pub(crate) mod fate;
pub(crate) mod theme;
