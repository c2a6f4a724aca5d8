//! The conversation: what is sent, and what the empty screen offers to send.

pub(crate) mod conversation;
pub(crate) mod starters;
mod welcome;

use std::collections::{HashMap, HashSet};

use draftscope_protocol::Settings;

use crate::input::editor::Editor;

/// The conversation as the user leads it: what is typed, where conversations begin, what became of branches.
///
/// Invariant: `conversations` is in order and never empty. While another run is shown in place of the user's own,
/// `conversations` and `abandoned` are those of that run.
pub(crate) struct Talk {
    /// The prompt box.
    pub(crate) editor: Editor,
    /// The starter prompt offered last.
    pub(crate) starter: Option<usize>,
    /// Index of the turn with which each conversation begins.
    pub(crate) conversations: Vec<usize>,
    /// Numbers of the answers that branches ended, by the index of the branch's turn.
    pub(crate) ended: HashMap<usize, u32>,
    /// Indices of turns that continue such an answer: there is no return from these branches.
    pub(crate) resumed: HashSet<usize>,
    /// Numbers of branches that the user returned from.
    pub(crate) abandoned: HashSet<u32>,
    /// Settings before and after a branch changed them, by the index of its turn.
    pub(crate) lent: HashMap<usize, (Settings, Settings)>,
    /// The turn whose refused prompt is back in the prompt box.
    pub(crate) refused: u32,
    /// Whether the engine waited for a person's draft when last checked.
    pub(super) was_asked: bool,
}

impl Default for Talk {
    fn default() -> Self {
        Self {
            editor: Editor::default(),
            starter: None,
            conversations: vec![0],
            ended: HashMap::new(),
            resumed: HashSet::new(),
            abandoned: HashSet::new(),
            lent: HashMap::new(),
            refused: 0,
            was_asked: false,
        }
    }
}
