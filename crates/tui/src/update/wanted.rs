//! The commands that put settings in force, and settings that are set back.

use crate::app::App;
use draftscope_protocol::{Command, DraftLenMode, Settings};
use draftscope_session::Session;

/// Sets back what was set for a while (the settings before, and those then), unless somebody has set something
/// since; none where there is nothing to set back.
pub(super) fn give_back(app: &mut App, live: &Session, lent: (Settings, Settings)) -> Option<Vec<Command>> {
    let (now, (before, lent)) = (app.requests.settings(live), lent);
    if owned(&now) != owned(&lent) || owned(&now) == owned(&before) {
        return None;
    }
    let wanted = Settings {
        draft_len: before.draft_len,
        draft_len_mode: before.draft_len_mode,
        threads: before.threads,
        drafter: before.drafter,
        drafting: before.drafting,
        rule: before.rule,
        leniency: before.leniency,
        sampling: before.sampling,
        max_tokens: before.max_tokens,
        baseline: before.baseline,
        rival: before.rival,
        ..now
    };
    app.requests.want(live, wanted);
    Some(set(&wanted))
}

/// What a lesson or a branch sets.
fn owned(settings: &Settings) -> impl PartialEq + use<> {
    let Settings {
        draft_len,
        draft_len_mode,
        threads,
        drafter,
        drafting,
        rule,
        leniency,
        sampling,
        max_tokens,
        baseline,
        rival,
        ..
    } = *settings;
    (draft_len, draft_len_mode, threads, drafter, drafting, rule, leniency, sampling, max_tokens, baseline, rival)
}

/// The commands for that.
pub(super) fn set(settings: &Settings) -> Vec<Command> {
    let draft_len = match settings.draft_len_mode {
        DraftLenMode::Fixed => Command::SetDraftLen { draft_len: settings.draft_len },
        DraftLenMode::Auto => Command::SetAutoDraftLen,
    };
    vec![
        draft_len,
        Command::SetRule { rule: settings.rule },
        Command::SetLeniency { leniency: settings.leniency },
        Command::SetDrafter { drafter: settings.drafter },
        Command::SetDrafting { drafting: settings.drafting },
        Command::SetSampling { sampling: settings.sampling },
        Command::SetMaxTokens { max_tokens: settings.max_tokens },
        Command::SetBaseline { baseline: settings.baseline },
        Command::SetRival { rival: settings.rival },
        Command::SetThreads { threads: settings.threads },
    ]
}
