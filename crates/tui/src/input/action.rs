//! What a key can ask for, as a closed list with an aim and a sentence each.
//!
//! Invariant: every action is in [`Action::ALL`], has a name for `keymap.toml`, and an aim and a description
//! for the help; a test checks that each is bound. What an action does is `update`.

use serde::Deserialize;

use draftscope_protocol::Ability;

macro_rules! actions {
    ($($action:ident: $aim:ident = $doc:literal),+ $(,)?) => {
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
            /// What one wants to do with it.
            pub(crate) const fn aim(self) -> Aim { match self { $(Action::$action => Aim::$aim),+ } }
        }
    };
}

actions! {
    Send: Ask = "Send the prompt",
    Newline: Ask = "Start a new line in the prompt",
    HistoryPrevious: Ask = "Recall the prompt before (on an empty prompt)",
    HistoryNext: Ask = "Recall the prompt after; on the empty screen, take a starter prompt",
    StopOrQuit: Ask = "Stop the answer; when nothing runs, clear the prompt; when that is empty, quit",
    Quit: Screen = "Quit",
    Suspend: Screen = "Suspend the program; fg in the shell brings it back",
    Help: Learn = "Show or hide this help",
    Palette: Learn = "Find any action by name and run it",
    Search: Select = "Find text in the answers, or in the help; Enter goes on to the next place",
    Settings: Change = "Change settings: drafter, k, tree, rule, sampling, theme, pace and more",
    Tour: Learn = "Show the tour of the screen: twenty seconds, → goes on, Esc ends it",
    Demo: Learn = "Play a recording of the real engine, and return",
    Leave: Look = "Leave: close what is open, return to the live round, or leave the prompt",
    Confirm: Screen = "Take what is chosen",
    FocusNext: Look = "Move to the next pane",
    FocusPrevious: Look = "Move to the pane before",
    Zoom: Look = "Give the pane the whole screen, or give it back",
    Present: Look = "Presenter: draw one round large, for a projector, and back",
    EditPrompt: Ask = "Go to the prompt",
    ShowPrompt: Ask = "Show the newest prompt as the model gets it, with its template and special tokens",
    NewConversation: Ask = "Start a new conversation: earlier turns are no longer sent",
    ViewChat: Look = "Chat: the answer, every token with its fate",
    ViewRounds: Look = "Rounds: the ladder, one row per round",
    ViewInspect: Look = "Inspect: one position, drafter and target side by side",
    ViewSpeed: Look = "Speed: where the time goes and what speculation is worth",
    ViewCompare: Look = "Compare: plain and speculative against each other",
    ViewLearn: Look = "Learn: lessons that ask before they explain",
    PauseResume: Pause = "Pause between two phases, or go on; in the past, play from there",
    StepPhase: Pause = "Go on by one phase (a draft token, the verify pass, the verdict, the commit)",
    StepRound: Pause = "Go on to the end of the round",
    BackPhase: Past = "Go back in time by one phase",
    BackRound: Past = "Go back in time by one round",
    BackToken: Past = "Go back in time by one token of the answer",
    NextToken: Past = "Go on in time by one token of the answer",
    TimeStart: Past = "Go back to the start of the run",
    Replay: Past = "Play the answer on show again from its first round, slowly; the keys for slower and faster change its pace",
    TimeHere: Past = "Go to the moment at which the selected round was committed",
    GoTo: Past = "Go to a moment: a round (12), a time of the turn on show (3.5s, 1:05) or a share of the run (40%)",
    ScrubBack: Past = "Go back by a twentieth of the turn",
    ScrubForward: Past = "Go on by a twentieth of the turn; in a recording also to what has not played yet",
    Bookmark: Past = "Put a bookmark at the selected round, else at this moment",
    Note: Past = "Write a note about the selected round, else about this moment",
    MarkPrevious: Past = "Go to the bookmark or note before",
    MarkNext: Past = "Go to the bookmark or note after; in a recording also to one that has not played yet",
    Slower: Pause = "Slower: fewer rounds a second; a recording plays at down to 0.02×",
    Faster: Pause = "Faster: more rounds a second, at last full speed; a recording plays at up to 16×",
    RecordingPrevious: Screen = "Play the recording before, where several play one after the other (draftscope demo)",
    RecordingNext: Screen = "Play the recording after",
    WhatIf: Change = "What if: judge the selected round again under other settings",
    AskRows: Select = "Ask a llama-server for the target's predictions at every token of the newest answer",
    ContinueHere: Change = "Go on from the end of the selected round, as a branch of the answer",
    ReturnBranch: Change = "Return from a branch to the answer it left; one that the branch ended goes on",
    Up: Select = "Up: a line, a round, a choice",
    Down: Select = "Down: a line, a round, a choice",
    Left: Select = "Select the token before",
    Right: Select = "Select the token after",
    PageUp: Select = "Up a page",
    PageDown: Select = "Down a page",
    Top: Select = "Go to the first line or round",
    Follow: Select = "Return to now: the newest line, the live round, the present",
    RoundPrevious: Select = "Select the round before",
    RoundNext: Select = "Select the round after",
    RejectPrevious: Select = "Select the rejection before",
    RejectNext: Select = "Select the rejection after; in a recording also one that has not played yet",
    Open: Select = "Open the selected token in Inspect, and close it; with none selected, go to the prompt",
    MarkAccepted: Learn = "In the quiz: mark the draft as accepted",
    MarkRejected: Learn = "In the quiz: mark the draft as rejected",
    MarkNotReached: Learn = "In the quiz: mark the draft as not reached",
    NextVerdict: Learn = "In the quiz: give the draft its next mark",
    OpenLesson: Learn = "In the quiz: open the lesson that treats a wrong answer",
    NextFilter: Select = "Next filter of the ladder: all, rejects, full accepts, classes of tokens",
    NextDisplay: Look = "Discarded drafts in the answer: a sign with their number, all of them, none",
    ReadLoop: Look = "Read the loop: the ten lines of speculative decoding above the round, lit phase by phase",
    WhyDisturbed: Look = "Say why a figure is disturbed",
    ToggleThought: Look = "Open or fold what the model thought before its answer",
    ToggleSplit: Compare = "Race plain decoding: both answers side by side, each to its end; once more ends the race",
    DraftLenUp: Change = "k + 1: one more draft token per round",
    DraftLenDown: Change = "k − 1: one draft token fewer per round",
    DialUp: Change = "Turn the dial up: more drafts are right. The dial is a drafter; these keys choose it, if another one drafts",
    DialDown: Change = "Turn the dial down: fewer drafts are right",
    NextRule: Change = "Next verification rule",
    ToggleLossless: Compare = "Race a lossless rule against one that is not, on the newest prompt, and back",
    TemperatureUp: Change = "Temperature + 0.1",
    TemperatureDown: Change = "Temperature − 0.1",
    Versus: Compare = "Race other settings (k, rule, drafter, temperature) beside your own, from the next turn on",
    NextBaseline: Compare = "How plain decoding is measured: off, probe, race (from the next turn on)",
    NextTheme: Screen = "Next theme",
    ChooseTheme: Screen = "Choose a theme; the screen shows it at once",
    Copy: Keep = "Copy the answer to the terminal's clipboard (OSC 52)",
    Save: Keep = "Save the session as a trace",
    Export: Keep = "Export the session: a page, a table, a picture and more",
    Picture: Keep = "Write the screen as pictures: SVG and PNG, in the current folder",
    DivergencePrevious: Compare = "In a diff: go to the difference before",
    DivergenceNext: Compare = "In a diff: go to the difference after",
    TurnPrevious: Select = "Go to the start of the turn, then to the turn before",
    TurnNext: Select = "Go to the turn after",
}

/// What one wants to do with an action: the help is in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
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
    pub(crate) const ALL: [Self; 10] = [
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
    pub(crate) const fn title(self) -> &'static str {
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

/// What one looks for in the list of actions, the most useful first.
const SOUGHT: &[Action] = &[
    Action::Settings,
    Action::WhatIf,
    Action::ToggleSplit,
    Action::Replay,
    Action::NextDisplay,
    Action::ContinueHere,
    Action::Versus,
    Action::ToggleLossless,
    Action::ViewRounds,
    Action::ViewInspect,
    Action::ViewSpeed,
    Action::ViewCompare,
    Action::ViewLearn,
    Action::ViewChat,
    Action::Export,
    Action::Save,
    Action::Copy,
    Action::Picture,
    Action::NewConversation,
    Action::DialDown,
    Action::ReadLoop,
    Action::Present,
    Action::ChooseTheme,
    Action::Search,
    Action::Bookmark,
    Action::Note,
    Action::GoTo,
    Action::ShowPrompt,
    Action::Demo,
    Action::Tour,
    Action::Help,
];

/// What nobody looks for in a list: keys that move and confirm.
const PLAIN_KEYS: &[Action] = &[
    Action::Send,
    Action::Newline,
    Action::Confirm,
    Action::Leave,
    Action::Open,
    Action::PageUp,
    Action::PageDown,
    Action::Left,
    Action::Right,
    Action::Up,
    Action::Down,
];

impl Action {
    /// Its place in the list of actions, if nothing is typed: small is early.
    pub(crate) fn place_in_list(self) -> usize {
        let among = |list: &[Self]| list.iter().position(|action| *action == self);
        let plain = |place: usize| SOUGHT.len() + 1 + place;
        among(SOUGHT).or_else(|| among(PLAIN_KEYS).map(plain)).unwrap_or(SOUGHT.len())
    }

    /// What the engine must be able to do for it; none if every source of events will do.
    pub(crate) const fn needs(self) -> Option<Ability> {
        Some(match self {
            Self::DraftLenUp | Self::DraftLenDown => Ability::SetDraftLen,
            Self::NextRule | Self::DialUp | Self::DialDown => Ability::SetDrafter,
            Self::TemperatureUp | Self::TemperatureDown => Ability::SetSampling,
            Self::NextBaseline | Self::ToggleLossless | Self::ToggleSplit | Self::Versus => Ability::Compare,
            Self::ContinueHere => Ability::Branch,
            Self::AskRows => Ability::AskRows,
            _ => return None,
        })
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
