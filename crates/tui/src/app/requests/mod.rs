//! What was asked of the engine and has no answer yet.

mod answering;
pub(crate) mod pending_requests;

/// A prompt on its way: sent, and no event about it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Awaiting {
    pub(crate) text: String,
    pub(crate) turns: usize,
    pub(crate) notices: u64,
    /// It was typed: if it is refused, it is changed where it was typed.
    pub(crate) is_typed: bool,
}

/// Requests that only the owner of the terminal and of the caller's hooks can fulfil.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Suspend,
    Copy(String),
    Save,
    /// Saves, then quits.
    SaveAndQuit,
    /// In the format of this index.
    Export(usize),
    /// The screen as pictures.
    Picture,
    /// The theme of this name is to be used from the next start on.
    KeepTheme(String),
}
