//! Settings: by a key of their own, and in the panel.

use crate::app::App;
use crate::app::clock::pace::Pace;
use crate::app::overlay::panel_row::PanelRow;
use crate::app::overlay::setting_row::{SettingRow, neighbour};
use crate::app::place::page::Page;
use crate::app::talk::conversation::{self, Point};
use crate::input::action::Action;
use draftscope_protocol::{Ability, Baseline, Command, DrafterKind, Lane, Rival, Settings};
use draftscope_session::{Session, Timeline};

use super::sending::{refusal, unable};
use super::time;

/// Changes one setting, starting from the requested settings.
pub(super) fn change(app: &mut App, session: &Session, action: Action) -> Vec<Command> {
    let (setting, up) = match action {
        Action::DraftLenUp => (SettingRow::DraftLen, true),
        Action::DraftLenDown => (SettingRow::DraftLen, false),
        Action::TemperatureUp => (SettingRow::Temperature, true),
        Action::TemperatureDown => (SettingRow::Temperature, false),
        Action::DialUp | Action::DialDown if app.requests.settings(session).drafter != DrafterKind::Dial => {
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
        app.toast = Some(format!("{}: {}", setting.name(), setting.value(&app.requests.settings(session))));
    }
    commands
}

/// Makes the dial the drafter.
fn take_dial(app: &mut App, session: &Session) -> Vec<Command> {
    if let Some(refusal) = refusal(session) {
        return app.say(refusal);
    }
    if let Some(why) = unable(session, SettingRow::Drafter.needs()) {
        app.toast = Some(why);
        return Vec::new();
    }
    if !drafters(session).contains(&DrafterKind::Dial) {
        return app.say("this engine has no dial");
    }
    let settings = Settings { drafter: DrafterKind::Dial, ..app.requests.settings(session) };
    app.requests.want(session, settings);
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
    let dead = session.failure().is_some() || app.requests.lost.is_some();
    if let Some(refusal) = refusal(session).or(dead.then_some("the engine has stopped; quit and start again")) {
        return app.say(refusal);
    }
    let mut settings = app.requests.settings(session);
    if settings.drafter == DrafterKind::Human {
        return app.say("nobody is asked for drafts in a race: choose another drafter first");
    }
    let (own, other) = (settings.rule, settings.rule.counterpart());
    let rival = Some(Rival { rule: other, ..Rival::like(&settings) });
    let ends = settings.rival.map(|now| Rival { draft_len: settings.draft_len, ..now }) == rival;
    settings.rival = rival.filter(|_| !ends);
    app.requests.want(session, settings);
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
            commands.extend(time::branch(app, time, prompt));
            format!("the newest prompt is answered again; {} returns", app.key(Action::ReturnBranch))
        }
        None => "from the next prompt on".to_owned(),
    };
    app.toast = Some(format!("{own} ({}) against {other} ({}): {when}", own.label(), other.label()));
    commands
}

/// The drafters that can be selected, plain decoding included.
fn drafters(session: &Session) -> Vec<DrafterKind> {
    let is_there = |kind: &DrafterKind| kind.chain().iter().all(|simple| session.available(*simple).is_some());
    DrafterKind::ALL.iter().filter(|kind| is_there(kind)).copied().collect()
}

/// Changes a row of the panel: a setting of the run, or one of the screen.
pub(super) fn turn_row(app: &mut App, session: &Session, row: PanelRow, up: bool) -> Vec<Command> {
    match row {
        PanelRow::Run(setting) => return turn(app, session, setting, up),
        PanelRow::Experts => {}
        PanelRow::Theme => app.turn_theme(up),
        PanelRow::Autosave => app.leaving.autosave = !app.leaving.autosave,
        PanelRow::Pace => {
            let pace = neighbour(&Pace::CHOICES, app.clock.pace, up);
            return time::set_pace(app, session, pace);
        }
    }
    Vec::new()
}

/// Changes one setting.
pub(super) fn turn(app: &mut App, session: &Session, setting: SettingRow, up: bool) -> Vec<Command> {
    if let Some(refusal) = refusal(session) {
        return app.say(refusal);
    }
    if let Some(why) = unable(session, setting.needs()) {
        app.toast = Some(why);
        return Vec::new();
    }
    let mut settings = app.requests.settings(session);
    let command = setting.turn(&mut settings, up, &drafters(session));
    app.requests.want(session, settings);
    vec![command]
}

/// Changes the rival: row 0 switches it on and off, the others are its settings.
pub(super) fn oppose(app: &mut App, session: &Session, row: usize, up: bool) -> Vec<Command> {
    if let Some(refusal) = refusal(session) {
        return app.say(refusal);
    }
    if let Some(why) = unable(session, Ability::Compare) {
        app.toast = Some(why);
        return Vec::new();
    }
    let mut settings = app.requests.settings(session);
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
    app.requests.want(session, settings);
    vec![Command::SetRival { rival: settings.rival }]
}

/// Asks for the plain lane to run to its end while the split view is on show, unless it does.
pub(super) fn race(app: &mut App, session: &Session) -> Vec<Command> {
    let mut settings = app.requests.settings(session);
    if settings.baseline == Baseline::Race {
        return Vec::new();
    }
    app.requests.before_race = Some(settings.baseline);
    settings.baseline = Baseline::Race;
    app.requests.want(session, settings);
    app.toast = Some(format!(
        "the race is on: plain decoding answers every prompt, too, to its end; {} ends the race",
        app.key(Action::ToggleSplit)
    ));
    vec![Command::SetBaseline { baseline: Baseline::Race }]
}

/// Has plain decoding measured as it was before the race, unless somebody has set something else since.
pub(super) fn end_race(app: &mut App, session: &Session) -> Vec<Command> {
    let mut settings = app.requests.settings(session);
    let Some(baseline) = app.requests.before_race.take().filter(|_| settings.baseline == Baseline::Race) else {
        return Vec::new();
    };
    settings.baseline = baseline;
    app.requests.want(session, settings);
    let how = SettingRow::Baseline.value(&settings);
    app.toast = Some(format!("the race is over; {}: {how}, as before", SettingRow::Baseline.name()));
    vec![Command::SetBaseline { baseline }]
}
