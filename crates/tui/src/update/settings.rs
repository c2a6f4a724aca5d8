//! Settings: by a key of their own, and in the panel.

use crate::action::Action;
use crate::app::App;
use crate::conversation::{self, Point};
use crate::pace::Pace;
use crate::page::Page;
use crate::panel_row::PanelRow;
use crate::setting_row::{SettingRow, neighbour};
use draftscope_protocol::{Ability, Baseline, Command, DraftLenMode, DrafterKind, Lane, Rival, Settings};
use draftscope_session::{Session, Timeline};

/// Changes one setting, starting from the requested settings.
pub(super) fn change(app: &mut App, session: &Session, action: Action) -> Vec<Command> {
    let (setting, up) = match action {
        Action::DraftLenUp => (SettingRow::DraftLen, true),
        Action::DraftLenDown => (SettingRow::DraftLen, false),
        Action::TemperatureUp => (SettingRow::Temperature, true),
        Action::TemperatureDown => (SettingRow::Temperature, false),
        Action::DialUp | Action::DialDown if app.settings(session).drafter != DrafterKind::Dial => {
            return take_dial(app, session);
        }
        Action::DialUp => (SettingRow::Dial, true),
        Action::DialDown => (SettingRow::Dial, false),
        Action::NextRule => (SettingRow::Rule, true),
        _ => (SettingRow::Baseline, true),
    };
    let commands = turn(app, session, setting, up);
    if let [Command::SetBaseline { .. }] = commands[..] {
        // a panel on the screen shows it already
        app.toast = Some(format!("{}: {}", setting.name(), setting.value(&app.settings(session))));
    }
    commands
}

/// Makes the dial the drafter.
fn take_dial(app: &mut App, session: &Session) -> Vec<Command> {
    if let Some(refusal) = super::refusal(session) {
        return app.say(refusal);
    }
    if let Some(why) = super::unable(session, SettingRow::Drafter.needs()) {
        app.toast = Some(why);
        return Vec::new();
    }
    if !drafters(session).contains(&DrafterKind::Dial) {
        return app.say("this engine has no dial");
    }
    let settings = Settings { drafter: DrafterKind::Dial, ..app.settings(session) };
    want(app, session, settings);
    let (up, down, back) = (app.key(Action::DialUp), app.key(Action::DialDown), app.key(Action::Settings));
    let value = SettingRow::Dial.value(&settings);
    app.toast = Some(format!(
        "the dial drafts: {value} of its drafts are right; {down} {up} turn it, {back} changes the drafter"
    ));
    vec![Command::SetDrafter { drafter: DrafterKind::Dial }]
}

/// Answers the newest prompt again with a lossy rule beside a lossless one, or the other way round, and shows the
/// comparison; a second call ends the race.
pub(super) fn hold_against(app: &mut App, time: &mut Timeline) -> Vec<Command> {
    let session = time.live();
    let dead = session.failure().is_some() || app.lost.is_some();
    if let Some(refusal) = super::refusal(session).or(dead.then_some("the engine has stopped; quit and start again")) {
        return app.say(refusal);
    }
    let mut settings = app.settings(session);
    if settings.drafter == DrafterKind::Human {
        return app.say("nobody is asked for drafts in a race: choose another drafter first");
    }
    let (own, other) = (settings.rule, settings.rule.counterpart());
    let rival = Some(Rival { rule: other, ..Rival::like(&settings) });
    let ends = settings.rival.map(|now| Rival { draft_len: settings.draft_len, ..now }) == rival;
    settings.rival = rival.filter(|_| !ends);
    want(app, session, settings);
    let mut commands = vec![Command::SetRival { rival: settings.rival }];
    if ends {
        app.toast = Some(format!("{other} races no longer"));
        return commands;
    }
    let newest = session.turns().iter().rfind(|turn| !turn.answer(Lane::Speculative).prompt.is_empty());
    let again = newest.filter(|_| !app.is_busy(session)).map(|turn| conversation::branch(&Point::of(turn)));
    app.go_to(Page::Compare);
    let when = match again {
        Some(prompt) => {
            commands.extend(super::time::branch(app, time, prompt));
            format!("the newest prompt is answered again; {} returns", app.key(Action::ReturnBranch))
        }
        None => "from the next prompt on".to_owned(),
    };
    app.toast = Some(format!("{own} ({}) against {other} ({}): {when}", own.label(), other.label()));
    commands
}

/// The drafters that can be selected, plain decoding included.
fn drafters(session: &Session) -> Vec<DrafterKind> {
    let there = session.header().map(|header| header.drafters.iter().map(|info| info.kind)).into_iter().flatten();
    there.chain([DrafterKind::None]).collect()
}

/// Changes a row of the panel: a setting of the run, or one of the screen.
pub(super) fn turn_row(app: &mut App, session: &Session, row: PanelRow, up: bool) -> Vec<Command> {
    match row {
        PanelRow::Run(setting) => return turn(app, session, setting, up),
        PanelRow::Experts => {}
        PanelRow::Theme => app.turn_theme(up),
        PanelRow::Autosave => app.autosave = !app.autosave,
        PanelRow::Pace => {
            let pace = neighbour(&Pace::CHOICES, app.pace, up);
            return super::time::set_pace(app, session, pace);
        }
    }
    Vec::new()
}

/// Changes one setting.
pub(super) fn turn(app: &mut App, session: &Session, setting: SettingRow, up: bool) -> Vec<Command> {
    if let Some(refusal) = super::refusal(session) {
        return app.say(refusal);
    }
    if let Some(why) = super::unable(session, setting.needs()) {
        app.toast = Some(why);
        return Vec::new();
    }
    let mut settings = app.settings(session);
    let command = setting.turn(&mut settings, up, &drafters(session));
    want(app, session, settings);
    vec![command]
}

/// Changes the rival: row 0 switches it on and off, the others are its settings.
pub(super) fn oppose(app: &mut App, session: &Session, row: usize, up: bool) -> Vec<Command> {
    if let Some(refusal) = super::refusal(session) {
        return app.say(refusal);
    }
    if let Some(why) = super::unable(session, Ability::Compare) {
        app.toast = Some(why);
        return Vec::new();
    }
    let mut settings = app.settings(session);
    let setting = row.checked_sub(1).and_then(|row| SettingRow::RIVAL.get(row));
    settings.rival = match (setting, settings.rival) {
        (None, Some(_)) => None,
        (None, None) => Some(Rival::like(&settings)),
        (Some(setting), rival) => {
            // the rival's lane asks no person for drafts
            let drafters: Vec<_> = drafters(session).into_iter().filter(|kind| *kind != DrafterKind::Human).collect();
            let mut own = rival.unwrap_or(Rival::like(&settings)).settings(&settings);
            setting.turn(&mut own, up, &drafters);
            Some(Rival::like(&own))
        }
    };
    want(app, session, settings);
    vec![Command::SetRival { rival: settings.rival }]
}

pub(super) fn want(app: &mut App, session: &Session, settings: Settings) {
    app.wanted = Some((*session.settings(), settings));
}

/// Asks for the plain lane to run to its end while the split view is on show, unless it does.
pub(super) fn race(app: &mut App, session: &Session) -> Vec<Command> {
    let mut settings = app.settings(session);
    if settings.baseline == Baseline::Race {
        return Vec::new();
    }
    app.before_race = Some(settings.baseline);
    settings.baseline = Baseline::Race;
    want(app, session, settings);
    app.toast = Some(format!(
        "the race is on: plain decoding answers every prompt, too, to its end; {} ends the race",
        app.key(Action::ToggleSplit)
    ));
    vec![Command::SetBaseline { baseline: Baseline::Race }]
}

/// Has plain decoding measured as it was before the race, unless somebody has set something else since.
pub(super) fn end_race(app: &mut App, session: &Session) -> Vec<Command> {
    let mut settings = app.settings(session);
    let Some(baseline) = app.before_race.take().filter(|_| settings.baseline == Baseline::Race) else {
        return Vec::new();
    };
    settings.baseline = baseline;
    want(app, session, settings);
    let how = SettingRow::Baseline.value(&settings);
    app.toast = Some(format!("the race is over; {}: {how}, as before", SettingRow::Baseline.name()));
    vec![Command::SetBaseline { baseline }]
}

/// Sets back what was set for a while (the settings before, and those then), unless somebody has set something
/// since; none where there is nothing to set back.
pub(super) fn give_back(app: &mut App, live: &Session, lent: (Settings, Settings)) -> Option<Vec<Command>> {
    let (now, (before, lent)) = (app.settings(live), lent);
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
    want(app, live, wanted);
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
