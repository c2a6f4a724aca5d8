//! What a key can ask for, as a closed list with a sentence each.
//!
//! Invariant: every action is in [`Action::ALL`], has a name for `keymap.toml` and a description
//! for the help; a test checks that each is bound. What an action does is `update.rs`.

use serde::Deserialize;

macro_rules! actions {
    ($($action:ident = $doc:literal),+ $(,)?) => {
        /// Something a user can ask for. Names in `keymap.toml` are in snake case.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Action { $(#[doc = $doc] $action),+ }
        impl Action {
            /// Every action.
            pub const ALL: &'static [Action] = &[$(Action::$action),+];
            /// What it does, for the help.
            #[must_use]
            pub const fn describe(self) -> &'static str { match self { $(Action::$action => $doc),+ } }
        }
    };
}

actions! {
    Send = "Send the prompt",
    Newline = "Start a new line in the prompt",
    HistoryPrevious = "Recall the prompt before (on an empty prompt)",
    HistoryNext = "Recall the prompt after",
    StopOrQuit = "Stop the answer; when nothing runs, quit",
    Quit = "Quit",
    Help = "Show or hide this help",
    Leave = "Leave: close the help, return to the live round, or leave the prompt",
    FocusNext = "Move between the prompt and the answer",
    EditPrompt = "Go to the prompt",
    NewConversation = "Start a new conversation: earlier turns are no longer sent",
    PauseResume = "Pause the engine between two phases, or go on",
    StepPhase = "Run one phase (a draft token, the verify pass, the verdict, the commit), then hold",
    StepRound = "Run to the end of the round, then hold",
    ScrollUp = "Scroll up a line",
    ScrollDown = "Scroll down a line",
    PageUp = "Scroll up a page",
    PageDown = "Scroll down a page",
    Top = "Go to the first line",
    Follow = "Follow the newest line and the live round",
    RoundPrevious = "Look at the round before",
    RoundNext = "Look at the round after",
    RejectPrevious = "Look at the rejection before",
    RejectNext = "Look at the rejection after",
    CellPrevious = "Explain the position before",
    CellNext = "Explain the position after",
    ToggleDiscarded = "Show or hide discarded drafts in the answer",
    ToggleSplit = "Plain and speculative side by side, both run to the end (from the next turn on)",
    DraftLenUp = "k + 1: one more draft token per round",
    DraftLenDown = "k − 1: one draft token fewer per round",
    NextRule = "Next verification rule",
    ToggleLossless = "Hold a lossless rule against one that is not, and back",
    TemperatureUp = "Temperature + 0.1",
    TemperatureDown = "Temperature − 0.1",
    NextBaseline = "How plain decoding is measured: off, probe, race (from the next turn on)",
    NextTheme = "Next theme",
}

impl Action {
    /// Its name in `keymap.toml`.
    #[must_use]
    pub fn name(self) -> String {
        let mut name = String::new();
        for c in format!("{self:?}").chars() {
            if c.is_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.extend(c.to_lowercase());
        }
        name
    }
}
