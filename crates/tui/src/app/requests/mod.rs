//! What was asked of the engine and has no answer yet.

mod answering;
pub(crate) mod pending_requests;

use draftscope_protocol::{Baseline, Settings};

use self::pending_requests::PendingRequests;

/// What was asked, of the engine and of the terminal's owner, and is not answered yet.
///
/// Invariant: only events change what is in force, which is the session's; what was asked for stands here until they do.
#[derive(Default)]
pub(crate) struct Requests {
    /// Requests that the engine has not answered yet.
    pub(crate) pending: PendingRequests,
    pub(crate) awaiting: Option<Awaiting>,
    /// Requested settings, and the settings at the time of the request.
    pub(crate) wanted: Option<(Settings, Settings)>,
    /// How plain decoding was measured before the split view let it race.
    pub(crate) before_race: Option<Baseline>,
    pub(crate) stop_sent: bool,
    /// The last plain answer that the engine was asked to finish: the run, the turn, and how many tokens it had.
    pub(crate) plain_asked: Option<(u64, u32, usize)>,
    /// For the owner of the terminal.
    pub(crate) asks: Vec<Ask>,
    /// The source is gone: the reason, as far as known.
    pub(crate) lost: Option<String>,
    /// No more events will come.
    pub(crate) has_ended: bool,
}

/// The end of the program, and what is saved then.
#[derive(Default)]
pub(crate) struct Leaving {
    pub(crate) quits: bool,
    /// Tokens of the answers when the session was last saved.
    pub(crate) saved: u64,
    /// Save the session when the user quits.
    pub(crate) autosave: bool,
}

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
