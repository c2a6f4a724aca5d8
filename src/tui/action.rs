//! What a key can ask for, as a closed list with a sentence each.
//!
//! Invariant: every action is in [`Action::ALL`], has a name for `keymap.toml` and a description
//! for the help; a test checks that each is bound. What an action does is `update`.

use serde::Deserialize;

use crate::protocol::Ability;

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
    HistoryNext = "Recall the prompt after; on the empty screen, take a starter prompt",
    StopOrQuit = "Stop the answer; when nothing runs, clear the prompt; when that is empty, quit",
    Quit = "Quit",
    Suspend = "Suspend the program; fg in the shell brings it back",
    Help = "Show or hide this help",
    Palette = "Find any action by name and run it",
    Search = "Find text in the answers, or in the help; Enter goes on to the next place",
    Settings = "Change settings: drafter, k, tree, rule, sampling, theme, pace and more",
    Tour = "Show the tour of the screen: twenty seconds, → goes on, Esc ends it",
    Demo = "Play a recording of the real engine, and return",
    Leave = "Leave: close what is open, return to the live round, or leave the prompt",
    Confirm = "Take what is chosen",
    FocusNext = "Move to the next pane",
    FocusPrevious = "Move to the pane before",
    Zoom = "Give the pane the whole screen, or give it back",
    Present = "Presenter: draw one round large, for a projector, and back",
    EditPrompt = "Go to the prompt",
    NewConversation = "Start a new conversation: earlier turns are no longer sent",
    ViewChat = "Chat: the answer, every token with its fate",
    ViewRounds = "Rounds: the ladder, one row per round",
    ViewInspect = "Inspect: one position, drafter and target side by side",
    ViewSpeed = "Speed: where the time goes and what speculation is worth",
    ViewCompare = "Compare: plain and speculative against each other",
    ViewLearn = "Learn: lessons that ask before they explain",
    PauseResume = "Pause between two phases, or go on; in the past, play from there",
    StepPhase = "Go on by one phase (a draft token, the verify pass, the verdict, the commit)",
    StepRound = "Go on to the end of the round",
    BackPhase = "Go back in time by one phase",
    BackRound = "Go back in time by one round",
    BackToken = "Go back in time by one token of the answer",
    NextToken = "Go on in time by one token of the answer",
    TimeStart = "Go back to the start of the run",
    TimeHere = "Go to the moment at which the selected round was committed",
    GoTo = "Go to a moment: a round (12), a time of the turn on show (3.5s, 1:05) or a share of the run (40%)",
    ScrubBack = "Go back by a twentieth of the turn",
    ScrubForward = "Go on by a twentieth of the turn; in a recording also to what has not played yet",
    Bookmark = "Put a bookmark at the selected round, else at this moment",
    Note = "Write a note about the selected round, else about this moment",
    MarkPrevious = "Go to the bookmark or note before",
    MarkNext = "Go to the bookmark or note after; in a recording also to one that has not played yet",
    Slower = "Slower: fewer rounds a second; a recording plays at down to 0.02×",
    Faster = "Faster: more rounds a second, at last full speed; a recording plays at up to 16×",
    RecordingPrevious = "Play the recording before, where several play one after the other (draftscope demo)",
    RecordingNext = "Play the recording after",
    WhatIf = "What if: judge the selected round again under other settings",
    AskRows = "Ask a llama-server for the target's predictions at every token of the newest answer",
    ContinueHere = "Go on from the end of the selected round, as a branch of the answer",
    ReturnBranch = "Return from a branch to the answer it left; one that the branch ended goes on",
    Up = "Up: a line, a round, a choice",
    Down = "Down: a line, a round, a choice",
    Left = "Select the token before",
    Right = "Select the token after",
    PageUp = "Up a page",
    PageDown = "Down a page",
    Top = "Go to the first line or round",
    Follow = "Return to now: the newest line, the live round, the present",
    RoundPrevious = "Select the round before",
    RoundNext = "Select the round after",
    RejectPrevious = "Select the rejection before",
    RejectNext = "Select the rejection after; in a recording also one that has not played yet",
    Open = "Open the selected token in Inspect, and close it; with none selected, go to the prompt",
    MarkAccepted = "In the quiz: mark the draft as accepted",
    MarkRejected = "In the quiz: mark the draft as rejected",
    MarkNotReached = "In the quiz: mark the draft as not reached",
    NextVerdict = "In the quiz: give the draft its next mark",
    OpenLesson = "In the quiz: open the lesson that treats a wrong answer",
    NextFilter = "Next filter of the ladder: all, rejects, full accepts, classes of tokens",
    NextDisplay = "How the answer reads: live colours, all marks, plain text",
    ToggleThought = "Open or fold what the model thought before its answer",
    ToggleSplit = "Race plain decoding: both answers side by side, each to its end; once more ends the race",
    DraftLenUp = "k + 1: one more draft token per round",
    DraftLenDown = "k − 1: one draft token fewer per round",
    NextRule = "Next verification rule",
    ToggleLossless = "Race a lossless rule against one that is not, on the newest prompt, and back",
    TemperatureUp = "Temperature + 0.1",
    TemperatureDown = "Temperature − 0.1",
    Versus = "Race other settings (k, rule, drafter, temperature) beside your own, from the next turn on",
    NextBaseline = "How plain decoding is measured: off, probe, race (from the next turn on)",
    NextTheme = "Next theme",
    ChooseTheme = "Choose a theme; the screen shows it at once",
    Copy = "Copy the answer to the terminal's clipboard (OSC 52)",
    Save = "Save the session as a trace",
    Export = "Export the session: a page, a table, a picture and more",
    Picture = "Write the screen as pictures: SVG and PNG, in the current folder",
    DivergencePrevious = "In a diff: go to the difference before",
    DivergenceNext = "In a diff: go to the difference after",
    TurnPrevious = "Go to the start of the turn, then to the turn before",
    TurnNext = "Go to the turn after",
}

/// What one wants to do with an action: the help is in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    Ask,
    Pause,
    Select,
    Look,
    Past,
    Change,
    Compare,
    Keep,
    Learn,
    Screen,
}

impl Aim {
    pub(super) const ALL: [Self; 10] = [
        Self::Ask,
        Self::Pause,
        Self::Select,
        Self::Look,
        Self::Past,
        Self::Change,
        Self::Compare,
        Self::Keep,
        Self::Learn,
        Self::Screen,
    ];

    /// Its headline in the help.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Ask => "Ask the model",
            Self::Pause => "Pause, step and set the pace",
            Self::Select => "Select tokens and rounds, scroll and search",
            Self::Look => "Change the view",
            Self::Past => "Go back in time",
            Self::Change => "Change how the model answers",
            Self::Compare => "Compare",
            Self::Keep => "Save, export and copy",
            Self::Learn => "Learn and get help",
            Self::Screen => "Theme, recordings and the program",
        }
    }
}

impl Action {
    /// What the engine must be able to do for it; none if every source of events will do.
    pub(super) const fn needs(self) -> Option<Ability> {
        Some(match self {
            Self::DraftLenUp | Self::DraftLenDown => Ability::SetDraftLen,
            Self::NextRule => Ability::SetDrafter,
            Self::TemperatureUp | Self::TemperatureDown => Ability::SetSampling,
            Self::NextBaseline | Self::ToggleLossless | Self::ToggleSplit | Self::Versus => Ability::Compare,
            Self::ContinueHere => Ability::Branch,
            Self::AskRows => Ability::AskRows,
            _ => return None,
        })
    }

    /// What one wants to do with it.
    pub(super) const fn aim(self) -> Aim {
        match self {
            Self::Send
            | Self::Newline
            | Self::EditPrompt
            | Self::HistoryPrevious
            | Self::HistoryNext
            | Self::StopOrQuit
            | Self::NewConversation => Aim::Ask,
            Self::PauseResume | Self::StepPhase | Self::StepRound | Self::Slower | Self::Faster => Aim::Pause,
            Self::Up
            | Self::Down
            | Self::Left
            | Self::Right
            | Self::PageUp
            | Self::PageDown
            | Self::Top
            | Self::Follow
            | Self::Open
            | Self::RoundPrevious
            | Self::RoundNext
            | Self::RejectPrevious
            | Self::RejectNext
            | Self::TurnPrevious
            | Self::TurnNext
            | Self::NextFilter
            | Self::Search
            | Self::AskRows => Aim::Select,
            Self::ViewChat
            | Self::ViewRounds
            | Self::ViewInspect
            | Self::ViewSpeed
            | Self::ViewCompare
            | Self::ViewLearn
            | Self::NextDisplay
            | Self::ToggleThought
            | Self::Present
            | Self::Zoom
            | Self::FocusNext
            | Self::FocusPrevious
            | Self::Leave => Aim::Look,
            Self::BackPhase
            | Self::BackRound
            | Self::BackToken
            | Self::NextToken
            | Self::TimeStart
            | Self::TimeHere
            | Self::GoTo
            | Self::ScrubBack
            | Self::ScrubForward
            | Self::Bookmark
            | Self::Note
            | Self::MarkPrevious
            | Self::MarkNext => Aim::Past,
            Self::DraftLenUp
            | Self::DraftLenDown
            | Self::NextRule
            | Self::TemperatureUp
            | Self::TemperatureDown
            | Self::Settings
            | Self::WhatIf
            | Self::ContinueHere
            | Self::ReturnBranch => Aim::Change,
            Self::ToggleSplit
            | Self::Versus
            | Self::ToggleLossless
            | Self::NextBaseline
            | Self::DivergencePrevious
            | Self::DivergenceNext => Aim::Compare,
            Self::Save | Self::Export | Self::Picture | Self::Copy => Aim::Keep,
            Self::Help
            | Self::Palette
            | Self::Tour
            | Self::Demo
            | Self::MarkAccepted
            | Self::MarkRejected
            | Self::MarkNotReached
            | Self::NextVerdict
            | Self::OpenLesson => Aim::Learn,
            Self::NextTheme
            | Self::ChooseTheme
            | Self::RecordingPrevious
            | Self::RecordingNext
            | Self::Confirm
            | Self::Suspend
            | Self::Quit => Aim::Screen,
        }
    }

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
