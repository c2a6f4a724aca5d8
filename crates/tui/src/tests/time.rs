//! Scripts of keys: time, branches, what if, search, lessons, the mouse.

use super::*;
use crate::app::place::page::Page;
use crate::app::{Ask, Overlay};
use draftscope_protocol::{Continuation, Drafted, DrafterInfo, Prefilled, RoundStarted, VerifyRule};
use draftscope_session::{Provenance, Stop};

fn browse(script: &Script) -> Stage {
    let mut stage = Stage::of(script);
    stage.press("<Tab>");
    stage
}

fn branch(stage: &Stage) -> &Continuation {
    match stage.sent.last() {
        Some(Command::Generate { prompt: Prompt::Branch(from) }) => from,
        other => panic!("no branch was sent: {other:?}"),
    }
}

#[test]
fn going_back_holds_the_engine_and_returning_lets_go() {
    let mut stage = browse(&conversation()).pressed("<");
    assert!(stage.time.is_past());
    assert_eq!(stage.sent, [Command::Pause]);
    stage.apply(EventKind::Paused);
    stage.press("<").press(",");
    assert_eq!(stage.sent, [Command::Pause], "it is held already");
    stage.shows((80, 24), &["the past: turn 2 of 2, round", "the present is paused"]);
    stage.press("<End>");
    assert_eq!(stage.sent, [Command::Pause, Command::Resume]);
    assert!(!stage.time.is_past());
    assert!(!stage.screen(80, 24).contains("the past"));
}

#[test]
fn a_user_s_own_pause_outlives_a_look_back() {
    let mut stage = browse(&conversation()).pressed("<Space>");
    stage.apply(EventKind::Paused);
    stage.press("<").press("<End>");
    assert_eq!(stage.sent, [Command::Pause]);
}

#[test]
fn steps_in_the_past_move_the_past_only() {
    let mut stage = browse(&first_turn());
    let end = stage.time.end();
    stage.press("{");
    let start = stage.time.at();
    assert_eq!(start, stage.time.start());
    stage.press(".");
    assert!(stage.time.at() > start);
    let phase = stage.time.at();
    stage.press(">");
    assert_eq!(Some(stage.time.at()), {
        let mut other = Stage::of(&first_turn());
        other.time.go(phase);
        other.time.after(Stop::Round)
    });
    for _ in 0..20 {
        stage.press(">");
    }
    assert!(!stage.time.is_past(), "after the last round comes the present");
    assert!(stage.sent.is_empty());
    assert_eq!(stage.time.end(), end);
    stage.press("{,").shows((80, 24), &["this is the beginning"]);
}

#[test]
fn the_past_plays_until_it_is_the_present() {
    let mut stage = browse(&conversation()).pressed("{");
    stage.apply(EventKind::Paused);
    assert_eq!(update::next_tick(&stage.app, &stage.time), None);
    stage.press("<Space>");
    let mut ticks = 0;
    while stage.time.is_past() {
        assert!(update::next_tick(&stage.app, &stage.time).is_some());
        let commands = update::tick(&mut stage.app, &mut stage.time);
        stage.sent.extend(commands);
        ticks += 1;
    }
    assert!(ticks > 40, "{ticks} phases");
    assert_eq!(stage.sent, [Command::Pause, Command::Resume]);
    assert_eq!(update::next_tick(&stage.app, &stage.time), None);
}

#[test]
fn a_slow_engine_runs_a_phase_a_tick() {
    let mut stage = browse(&conversation()).pressed("[[[");
    let gap = update::next_tick(&stage.app, &stage.time).unwrap();
    assert_eq!(gap.as_millis(), 31, "a quarter of a second for three drafts, a pass, three verdicts and a commit");
    assert_eq!(update::tick(&mut stage.app, &mut stage.time), [Command::StepPhase]);
    stage.apply(EventKind::Paused);
    stage.shows((80, 24), &["● 4 rounds/s"]);
    stage.press("<Space>");
    assert_eq!(update::next_tick(&stage.app, &stage.time), None);
    stage.shows((80, 24), &["‖ paused"]);
    stage.press("<Space>]]]]]");
    assert_eq!(stage.sent.last(), Some(&Command::Resume));
    assert_eq!(update::next_tick(&stage.app, &stage.time), None);
}

#[test]
fn a_slow_engine_keeps_its_pace_through_a_look_back() {
    let mut stage = browse(&conversation()).pressed("[[[");
    stage.apply(EventKind::Paused);
    stage.press("<End>");
    assert!(stage.app.clock.plays, "now is on show already");
    stage.press("<");
    assert!(stage.time.is_past() && !stage.app.clock.plays);
    stage.press("<End>");
    assert!(stage.app.clock.plays);
    stage.press("<Space>").press("<").press("<End>");
    assert!(!stage.app.clock.plays, "the user had paused it");
    assert!(!stage.sent.contains(&Command::Resume), "{:?}", stage.sent);
}

#[test]
fn time_in_which_nothing_happened_is_passed_over() {
    let mut script = first_turn();
    let (mut stage, wait_us) = (browse(&script), 60_000_000);
    let met = script.events.len();
    script.prompt("and?", "Well");
    for event in &mut script.events[met..] {
        event.at_us += wait_us;
        stage.time.apply(event.clone());
    }
    stage.press("{<C-Right>");
    let before = stage.time.at();
    stage.press("<C-Right>");
    assert!(stage.time.at() > before);
    stage.press("{<C-Left><C-Left>");
    assert!(stage.time.at() <= stage.time.start());
    stage.shows((80, 24), &["this is the beginning"]);
}

#[test]
fn a_new_answer_has_no_round_of_the_one_before() {
    let mut script = first_turn();
    let rounds = script.events.len();
    script.prompt("and?", "Well");
    let mut stage = browse(&script);
    let at = stage.app.round_index(stage.time.shown()).unwrap();
    assert_eq!((at.turn, at.round), (1, None));
    stage.press("<S-Left>");
    assert_eq!(stage.app.round_index(stage.time.shown()).map(|at| at.turn), Some(0));
    stage.press("<S-Right>");
    assert_eq!(stage.app.place.selected, None, "after the last round comes the newest answer");
    // while its prompt is read
    let mut early = Stage::folded(&script.events[..=rounds], TuiOptions::default());
    early.shows((120, 40), &["(before)"]);
}

#[test]
fn an_answer_goes_on_from_the_selected_round() {
    let stage = browse(&first_turn()).pressed("<S-Left><S-Left>g");
    let session = stage.time.live();
    let answer = session.turns()[0].answer(Lane::Speculative);
    let from = branch(&stage);
    assert_eq!(from.branch.kept, 13, "the first token and rounds 1 to 5: 1 + 1 + 4 + 1 + 3 + 3");
    let kept: Vec<_> = answer.tokens[..13].iter().map(|t| t.piece.id).collect();
    assert!(from.tokens.ends_with(&kept));
    assert_eq!(from.tokens.len(), answer.prompt.len() + 13);
    assert_eq!(from.typed, "Why is the sky blue?");
}

#[test]
fn a_branch_stands_in_place_of_what_it_left_until_one_returns() {
    let mut stage = browse(&first_turn()).pressed("<S-Left>g");
    let from = branch(&stage).clone();
    let prompt: Vec<_> = from.tokens.iter().map(|id| draftscope_protocol::Piece::new(*id, " x")).collect();
    let first = draftscope_session::fixture::piece(" end");
    stage.apply(EventKind::Prompted { turn: 2, text: from.typed, branch: Some(from.branch) });
    let row = draftscope_protocol::Prediction::default();
    stage.apply(EventKind::Prefilled(Prefilled { turn: 2, prompt, cached: 3, first, row, took_us: 1 }));
    stage.apply(EventKind::Finished { reason: StopReason::Eos });
    let answer = stage.time.live().turns()[1].answer(Lane::Speculative);
    assert_eq!(answer.tokens.len(), from.branch.kept as usize + 1);
    assert_eq!(answer.tokens[0].provenance, Provenance::Kept);
    stage.shows((120, 40), &["⑂ turn 1, continuing after token"]);
    stage.press("iand?<Enter>");
    let Some(Command::Generate { prompt: Prompt::Chat(messages) }) = stage.sent.last() else { panic!("a prompt") };
    assert_eq!(messages.len(), 3, "the turn that was left is not sent");
    assert!(messages[1].content.ends_with(" end"));
    stage.apply(EventKind::Notice { message: String::new() });
    stage.press("<Esc>u<Esc>");
    stage.press("iand?<Enter>");
    let Some(Command::Generate { prompt: Prompt::Chat(messages) }) = stage.sent.last() else { panic!("a prompt") };
    assert!(messages[1].content.starts_with("The sky is blue"));
    assert_eq!(messages.len(), 3);
}

#[test]
fn what_if_asks_the_engine_to_go_on_as_wished() {
    let mut stage = browse(&first_turn());
    for _ in 0..6 {
        stage.press("<S-Left>");
    }
    stage.press("w<Down><Down><Down><Right>").shows((80, 24), &["commits: ·color ·is", "no longer what the target"]);
    stage.press("<Enter>");
    let from = branch(&stage);
    assert!(from.branch.forced);
    assert_eq!(from.branch.kept, 3, "the first token, the overruled draft and what the target says behind it");
    assert_eq!(stage.app.place.overlay, None);
    stage.apply(EventKind::Notice { message: String::new() });
    stage.walk((80, 24), &[("w<Right>", "it was:"), ("<Down><Right>", "rejection")]);
    stage.press("<Enter>");
    let sent = &stage.sent[stage.sent.len() - 3..];
    assert!(matches!(sent[0], Command::SetDraftLen { draft_len: 4 }), "{sent:?}");
    assert!(matches!(sent[1], Command::SetRule { rule: VerifyRule::Rejection }), "{sent:?}");
}

#[test]
fn what_was_set_for_a_what_if_is_set_back_on_return() {
    let mut stage = browse(&first_turn());
    let own = *stage.time.live().settings();
    stage.press("w<Down><Right><Enter>");
    assert!(stage.sent.contains(&Command::SetRule { rule: VerifyRule::Rejection }), "{:?}", stage.sent);
    let settings = draftscope_protocol::Settings { rule: VerifyRule::Rejection, ..own };
    stage.apply(EventKind::SettingsChanged { settings });
    let branch = Some(draftscope_protocol::Branch { turn: 1, kept: 3, forced: false });
    stage.apply(EventKind::Prompted { turn: 2, text: "again".to_owned(), branch });
    stage.sent.clear();
    stage.press("u");
    assert_eq!(stage.sent.first(), Some(&Command::Stop), "the branch is under way");
    assert!(stage.sent.contains(&Command::SetRule { rule: own.rule }), "{:?}", stage.sent);
    stage.sent.clear();
    stage.press("u");
    assert!(stage.sent.is_empty(), "there is nothing more to return from");
}

#[test]
fn what_the_panel_shows_is_what_is_asked_for() {
    let mut stage = browse(&first_turn());
    let own = *stage.time.live().settings();
    let mut settings = draftscope_protocol::Settings { rule: VerifyRule::Typical, draft_len: 6, ..own };
    settings.sampling.temperature = 0.7;
    stage.apply(EventKind::SettingsChanged { settings });
    stage.press("w<Down><Down><Down><Right><Enter>");
    let wanted = [
        Command::SetDraftLen { draft_len: 3 },
        Command::SetRule { rule: own.rule },
        Command::SetSampling { sampling: own.sampling },
    ];
    assert_eq!(stage.sent[..3], wanted, "as in the round, not as the run is set now");
}

#[test]
fn leaving_where_there_is_nothing_to_leave_does_nothing() {
    let stage = browse(&first_turn()).pressed("2<Esc><Esc>");
    assert_eq!((stage.app.place.page, stage.app.is_typing()), (Page::Rounds, false));
}

#[test]
fn a_draft_of_the_user_is_judged() {
    let mut stage = browse(&first_turn());
    for _ in 0..6 {
        stage.press("<S-Left>");
    }
    stage.press("w<Down><Down><Down><Down><Down>sky").shows((80, 24), &["✓·sky", "has not read on from '·sky'"]);
    stage.press("<Up><Left>");
    assert!(!stage.screen(80, 24).contains("✓·sky"), "no place, no draft");
}

#[test]
fn tokens_are_walked_and_opened() {
    let mut stage = browse(&first_turn()).pressed("<Left><Left>");
    assert_eq!((stage.app.place.selected.map(|at| at.round), stage.app.place.cell), (Some(Some(5)), Some(3)));
    stage.press("<Right><Enter>");
    assert_eq!(stage.app.place.page, Page::Inspect);
    stage.shows((80, 24), &["Drafter's q, round 7 position 1", "The target preferred '·Earth' 0.47"]);
    stage.press("<Enter>");
    assert_eq!(stage.app.place.page, Page::Chat);
}

#[test]
fn the_ladder_filters_and_walks_what_fits() {
    let mut stage = browse(&first_turn());
    stage.walk((80, 24), &[("2", "Rounds: 7 of 7"), ("ff", "Rounds: 2 of 7 · all drafts accepted")]);
    stage.press("<Up>");
    assert_eq!(stage.app.place.selected.map(|at| at.round), Some(Some(5)));
    stage.press("<Up>");
    assert_eq!(stage.app.place.selected.map(|at| at.round), Some(Some(1)));
    stage.press("<Up><Down>");
    assert_eq!(stage.app.place.selected.map(|at| at.round), Some(Some(5)));
}

#[test]
fn a_search_selects_what_it_finds() {
    let mut stage = browse(&conversation()).pressed("/sun");
    assert_eq!(stage.app.place.selected, Some(RoundAt { turn: 0, round: Some(5) }));
    stage.press("<Enter>");
    assert_eq!(stage.app.place.selected, Some(RoundAt { turn: 1, round: Some(0) }));
    stage.press("<Up>");
    assert_eq!(stage.app.place.selected, Some(RoundAt { turn: 0, round: Some(5) }));
    stage.press("zz<Enter>").shows((80, 24), &["not found"]);
    stage.press("<Esc>");
    assert_eq!(stage.app.place.overlay, None);
}

#[test]
fn every_action_runs_from_the_palette() {
    for action in Action::ALL {
        let mut stage = browse(&conversation()).pressed(":");
        let name = action.name().replace('_', " ");
        for c in name.chars() {
            stage.key(KeyEvent::from(KeyCode::Char(c)));
        }
        stage.press("<Enter>");
        let left = matches!(
            action,
            Action::Palette | Action::Help | Action::Search | Action::Settings | Action::Versus | Action::WhatIf
        ) || matches!(action, Action::Note | Action::GoTo | Action::ChooseTheme | Action::ShowPrompt);
        assert_eq!(stage.app.place.overlay.is_some(), left, "{name}");
        assert!(!matches!(stage.app.place.overlay, Some(Overlay::Palette(_))) || *action == Action::Palette, "{name}");
    }
}

#[test]
fn settings_are_turned_in_the_panel() {
    let stage = browse(&first_turn()).pressed("o<Down><Right><Down><Down><Down><Down><Down><Right><Esc>");
    let sampling = draftscope_protocol::Sampling { temperature: 0.1, ..Default::default() };
    assert_eq!(stage.sent, [Command::SetDraftLen { draft_len: 4 }, Command::SetSampling { sampling }]);
}

#[test]
fn the_panel_offers_every_drafter_that_is_there_joined_ones_too() {
    let mut script = first_turn();
    script.head(|head| {
        head.settings.drafter = DrafterKind::DEFAULT;
        head.drafters = vec![DrafterInfo::weightless(DrafterKind::Suffix, 9)];
    });
    let stage = browse(&script).pressed("o<Right><Right><Right><Right><Left>");
    let took = stage.sent.iter().map(|command| match command {
        Command::SetDrafter { drafter } => drafter.name(),
        other => panic!("{other:?}"),
    });
    assert_eq!(took.collect::<Vec<_>>(), ["none", "mtp", "suffix", "suffix+mtp", "suffix"]);
}

#[test]
fn panes_cycle_and_zoom() {
    for page in Page::ALL {
        let mut stage = Stage::new(&conversation(), TuiOptions { page: *page, ..TuiOptions::default() });
        if *page == Page::Chat {
            stage.press("<Tab>");
        }
        let mut panes = Vec::new();
        for _ in page.panes() {
            panes.push(stage.app.place.pane);
            stage.press("z");
            stage.draw(80, 24);
            stage.press("z<Tab>");
        }
        assert_eq!(panes.len(), page.panes().len());
        panes.sort_by_key(|pane| *pane as u8);
        panes.dedup();
        assert_eq!(panes.len(), page.panes().len(), "{page:?}");
    }
}

#[test]
fn clicks_select_and_open() {
    let mut stage = browse(&first_turn());
    let screen = stage.screen(80, 24);
    let (y, line) = screen.lines().enumerate().find(|(_, line)| line.contains("phenomenon")).unwrap();
    let x = line[..line.find("phenomenon").unwrap()].width() as u16;
    let click = |stage: &mut Stage, x, y| {
        let commands = update::click(&mut stage.app, &mut stage.time, x, y);
        assert!(commands.is_empty());
        stage.draw(80, 24);
    };
    click(&mut stage, x, y as u16);
    assert_eq!((stage.app.place.selected, stage.app.place.cell), (Some(RoundAt { turn: 0, round: Some(3) }), Some(0)));
    let screen = stage.screen(80, 24);
    let (y, line) = screen.lines().enumerate().find(|(_, line)| line.contains("phenomenon")).unwrap();
    let x = line[..line.find("phenomenon").unwrap()].width() as u16;
    click(&mut stage, x, y as u16);
    assert_eq!(stage.app.place.page, Page::Inspect);
    let x = stage.screen(80, 24).lines().nth(1).unwrap().find("Rounds").unwrap() as u16;
    click(&mut stage, x, 1);
    assert_eq!(stage.app.place.page, Page::Rounds);
    stage.press("{");
    stage.draw(80, 24);
    click(&mut stage, 50, 22);
    assert!(stage.time.is_past() && stage.time.at() > stage.time.start());
}

#[test]
fn lessons_ask_before_they_tell() {
    let mut stage = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    stage.shows((80, 24), &["One pass predicts every position"]);
    stage.press("<Enter><Enter>");
    let screen = stage.screen(80, 24);
    assert!(screen.contains("What does its row at") && !screen.contains("spoil it"), "{screen}");
    stage.press("<Down><Enter>").shows((80, 24), &["Right.", "right: 1 of 1"]);
    stage.press("<Enter><Enter>").shows((80, 24), &["your draft after “The United”:  States of America"]);
    stage.press("<Enter>");
    assert!(matches!(stage.sent.last(), Some(Command::Generate { prompt: Prompt::Raw(text) }) if text == "The United"));
    stage.press("<Esc>");
    assert_eq!(stage.app.learning.study.lesson, None);
}

#[test]
fn a_lesson_gives_back_what_it_set() {
    let commands = |stage: &Stage| {
        stage.sent.iter().filter(|command| matches!(command, Command::SetDraftLen { .. })).cloned().collect::<Vec<_>>()
    };
    let mut stage = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    let before = *stage.time.live().settings();
    // lesson 7 runs with k = 15
    stage.press("<Down><Down><Down><Down><Down><Down><Enter><Right><Right><Enter>");
    assert!(matches!(stage.sent.last(), Some(Command::Generate { .. })));
    assert_eq!(commands(&stage), [Command::SetDraftLen { draft_len: 15 }]);
    let lent = stage.app.requests.settings(stage.time.live());
    assert_eq!(lent.draft_len, 15);
    let mut kept = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
    (kept.app.learning.study, kept.app.requests.wanted) = (stage.app.learning.study.clone(), stage.app.requests.wanted);
    stage.press("<Esc>");
    assert_eq!(commands(&stage)[1..], [Command::SetDraftLen { draft_len: before.draft_len }]);
    assert_eq!(stage.app.requests.settings(stage.time.live()), before);
    // what somebody set in the lesson stays
    kept.press("-<Esc>");
    assert_eq!(commands(&kept), [Command::SetDraftLen { draft_len: 14 }]);
}

#[test]
fn a_lesson_lets_go_of_the_engine_that_it_held() {
    // lesson 3 runs its prompt paused
    let held = || {
        let mut stage = Stage::new(&first_turn(), TuiOptions { page: Page::Learn, ..TuiOptions::default() });
        stage.press("<Down><Down><Enter>");
        while !stage.sent.iter().any(|command| matches!(command, Command::Generate { .. })) {
            stage.press("<Enter>");
        }
        assert_eq!(stage.sent[stage.sent.len() - 2], Command::Pause);
        stage.apply(EventKind::Paused);
        stage.apply(EventKind::Prompted { turn: 2, text: "x".to_owned(), branch: None });
        stage.sent.clear();
        stage
    };
    let resumes = |stage: &Stage| stage.sent.iter().filter(|command| **command == Command::Resume).count();
    let mut stage = held();
    stage.press(".<Esc>");
    assert_eq!(stage.sent[..2], [Command::StepPhase, Command::Resume], "left, it goes on");
    stage.press("<Esc>");
    assert_eq!(resumes(&stage), 1);
    let mut own = held();
    own.press("<Space>");
    own.apply(EventKind::Resumed);
    own.press("<Space>");
    own.apply(EventKind::Paused);
    own.press("<Esc>");
    assert_eq!(resumes(&own), 1, "what the user held stays held");
    let mut past = held();
    past.press("{<Esc>");
    assert!(!past.app.clock.holds && !past.time.is_past(), "the user's own run is on show again");
    assert_eq!(resumes(&past), 1, "its past is left with the lesson's run");
    let mut chat = held();
    chat.apply(EventKind::Finished { reason: StopReason::Eos });
    chat.press("1ihello<Enter>");
    assert_eq!(chat.sent[0], Command::Resume, "a prompt of one's own is not held by a lesson");
}

#[test]
fn a_picture_can_be_taken_from_everywhere() {
    for keys in ["", "i", "<F5>", "6", "?", ":", "o", "/", "T", "a", "<Space>"] {
        let mut stage = browse(&first_turn());
        stage.press(keys);
        let overlay = stage.app.place.overlay.clone();
        stage.press("<F12>");
        assert_eq!(
            (stage.app.requests.asks.last(), &stage.app.place.overlay),
            (Some(&Ask::Picture), &overlay),
            "after {keys}"
        );
    }
}

#[test]
fn copy_save_and_suspend_are_asked_of_the_terminal() {
    let stage = browse(&first_turn()).pressed("ys<C-z><F12>");
    let Some(Ask::Copy(text)) = stage.app.requests.asks.first() else { panic!("a copy") };
    assert!(text.starts_with("The sky is blue"));
    assert_eq!(stage.app.requests.asks[1..], [Ask::Save, Ask::Suspend, Ask::Picture]);
}

#[test]
fn a_recording_can_be_looked_at_but_not_changed() {
    let mut script = first_turn();
    script.head(|head| head.capabilities = Capabilities::default());
    let mut stage = browse(&script);
    stage.walk((80, 24), &[("<S-Left>g", "this is a recording"), ("w<Right><Enter>", "this is a recording")]);
    assert!(stage.sent.is_empty());
    stage.press("<Esc><");
    assert!(stage.time.is_past());
}

#[test]
fn the_person_is_the_drafter_when_asked() {
    let mut stage = browse(&conversation());
    stage.apply(EventKind::DraftAsked { draft_len: 3 });
    assert_eq!(stage.app.place.pane, Pane::Prompt);
    stage.shows((120, 40), &["You are the drafter", "so far 3 of 6 accepted"]);
    stage.press(" the sky<Enter>");
    assert_eq!(stage.sent, [Command::ProposeDraft { text: " the sky".to_owned() }]);
    stage.apply(EventKind::RoundStarted(RoundStarted { round: 11, base_len: 60, draft_len: 3 }));
    assert!(!stage.screen(120, 40).contains("You are the drafter"));
    stage.press("<Enter>");
    assert_eq!(stage.sent.len(), 1);
}

/// A turn whose rounds are drafted in one pass each.
fn block_turn() -> Script {
    let mut script = Script::started_with(|header| {
        if let Some(drafter) = &mut header.drafter {
            drafter.block = 7;
        }
    });
    script.in_blocks = true;
    script.prompt("Why ?", "Because");
    let drafts = [(" the", 0.9), (" sky", 0.6), (" is", 0.3)];
    script.round(&drafts, &[(" the", 0.9), (" sky", 0.7), (" was", 0.5), ("", 0.0)]);
    script
}

#[test]
fn drafts_of_one_pass_appear_in_one_step_and_are_timed_as_one() {
    let stops = |script: &Script| script.events.iter().filter(|event| Stop::Phase.is_at(event)).count();
    let (block, chain) = (block_turn(), {
        let mut script = block_turn();
        for event in &mut script.events {
            if let EventKind::Drafted(Drafted { more, .. }) = &mut event.kind {
                *more = false;
            }
        }
        script
    });
    assert_eq!(stops(&chain), stops(&block) + 2, "three drafts are one step");
    let mut stage = Stage::of(&block).pressed("2");
    stage.shows((200, 60), &["draft 0.9 ms (one pass for all 3) · verify"]);
    let round = stage.time.live().turn().unwrap().answer(Lane::Speculative).rounds.last().unwrap();
    assert!(round.is_block() && round.draft_us() == 920);
    assert!(!Stage::of(&chain).pressed("2").screen(200, 60).contains("one pass for all"));
}

#[test]
fn a_pace_counts_the_drafts_of_one_pass_as_one_step() {
    let cut = |script: &Script| {
        let at = script.events.iter().position(|event| matches!(event.kind, EventKind::Scored(_))).unwrap();
        Stage::folded(&script.events[..at], TuiOptions::default())
    };
    let (stage, mut chain) = (cut(&block_turn()), block_turn());
    chain.events.iter_mut().for_each(|event| {
        if let EventKind::Drafted(Drafted { more, .. }) = &mut event.kind {
            *more = false;
        }
    });
    let other = cut(&chain);
    let steps = |stage: &Stage| stage.app.steps(stage.time.live()).1;
    assert_eq!(steps(&other), steps(&stage) + 2);
}
