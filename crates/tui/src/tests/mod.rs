//! Whole screens from a folded conversation, scripts of keys, and arbitrary sizes, keys and events.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;
use unicode_width::UnicodeWidthStr;

#[path = "../../../session/src/any_events.rs"]
mod any_events;
mod compare;
mod diff;
mod fleet;
mod grammar;
mod lattice;
mod lessons;
mod panels;
mod presenter;
mod quiz;
mod race;
mod reading;
mod recording;
mod themes;
mod time;
mod views;
mod watching;
mod whole;

use super::*;
use crate::app::Scroll;
use crate::app::place::page::Pane;
use crate::app::place::{hit_map, page};
use crate::look::theme;
use any_events::any_events;
use draftscope_protocol::{
    Baseline, Capabilities, Command, DraftLenMode, DrafterKind, Event, EventKind, Lane, Message, Prompt, Speaker,
    StopReason, VerifyRule,
};
use draftscope_session::Timeline;
use draftscope_session::fixture::{Script, conversation, first_turn, header};
use draftscope_session::round_at::RoundAt;

/// A front end without a terminal.
struct Stage {
    time: Timeline,
    app: App,
    view: View,
    sent: Vec<Command>,
}

impl Stage {
    fn new(script: &Script, options: TuiOptions) -> Self {
        Self::folded(&script.events, options)
    }

    fn folded(events: &[Event], options: TuiOptions) -> Self {
        let mut time = Timeline::new();
        events.iter().cloned().for_each(|event| time.apply(event));
        let mut app = App::new(options);
        app.follow(time.live());
        Self { time, app, view: View::default(), sent: Vec::new() }
    }

    fn of(script: &Script) -> Self {
        Self::new(script, TuiOptions::default())
    }

    fn apply(&mut self, kind: EventKind) {
        self.app.deliver(&mut self.time, Event { seq: 0, at_us: 0, lane: Lane::Speculative, kind });
        self.app.follow(self.time.live());
    }

    /// Presses keys in the notation of the keymap, `<…>` for named ones; a frame after each.
    fn press(&mut self, script: &str) -> &mut Self {
        let mut rest = script;
        while let Some(c) = rest.chars().next() {
            let len = match rest.find('>') {
                Some(end) if c == '<' && end > 1 => end + 1,
                _ => c.len_utf8(),
            };
            let (name, tail) = rest.split_at(len);
            self.key(Chord::parse(name).unwrap().event());
            rest = tail;
        }
        self
    }

    /// After these keys.
    fn pressed(mut self, script: &str) -> Self {
        self.press(script);
        self
    }

    fn key(&mut self, key: KeyEvent) {
        let commands = update::press(&mut self.app, &mut self.time, key);
        self.sent.extend(commands);
        self.app.follow(self.time.live());
        self.draw(80, 24);
    }

    fn draw(&mut self, width: u16, height: u16) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut hit_map = HitMap::default();
        terminal.draw(|frame| hit_map = self.view.draw(&self.time, &self.app, self.app.theme(), frame)).unwrap();
        self.app.set_hit_map(hit_map);
        terminal
    }

    fn screen(&mut self, width: u16, height: u16) -> String {
        let buffer = self.draw(width, height).backend().buffer().clone();
        let row = |y| {
            let mut text = String::new();
            let mut x = 0;
            while x < width {
                let symbol = buffer[(x, y)].symbol();
                text.push_str(symbol);
                x += symbol.width().max(1) as u16;
            }
            text.trim_end().to_owned()
        };
        (0..height).map(row).collect::<Vec<_>>().join("\n")
    }

    /// A frame of this size shows each of these texts.
    fn shows(&mut self, (width, height): (u16, u16), texts: &[&str]) -> &mut Self {
        let screen = self.screen(width, height);
        texts.iter().for_each(|text| assert!(screen.contains(text), "'{text}' is not on the screen:\n{screen}"));
        self
    }

    /// Presses keys after each other; a frame of this size then shows the text beside them.
    fn walk(&mut self, size: (u16, u16), steps: &[(&str, &str)]) {
        for (keys, text) in steps {
            self.press(keys).shows(size, &[text]);
        }
    }
}

fn typed_twice() -> Stage {
    Stage::of(&first_turn()).pressed("hi<Enter>")
}

#[test]
fn a_conversation_at_80_24() {
    insta::assert_snapshot!(Stage::of(&conversation()).screen(80, 24));
}

#[test]
fn a_conversation_at_120_40() {
    insta::assert_snapshot!(Stage::of(&conversation()).screen(120, 40));
}

#[test]
fn a_conversation_at_200_60() {
    insta::assert_snapshot!(Stage::of(&conversation()).screen(200, 60));
}

#[test]
fn a_conversation_at_60_16() {
    insta::assert_snapshot!(Stage::of(&conversation()).screen(60, 16));
}

#[test]
fn a_selected_round_at_120_40() {
    let mut stage = Stage::of(&first_turn()).pressed("<Tab><S-Left><S-Left>h");
    insta::assert_snapshot!(stage.screen(120, 40));
}

#[test]
fn both_lanes_side_by_side() {
    let mut stage = Stage::of(&first_turn()).pressed("<F2><Esc>");
    insta::assert_snapshot!("split_80_24", stage.screen(80, 24));
    insta::assert_snapshot!("split_120_40", stage.screen(120, 40));
}

#[test]
fn the_help_lists_the_keymap() {
    let mut stage = Stage::of(&first_turn()).pressed("<F1>");
    insta::assert_snapshot!(stage.screen(100, 80));
}

#[test]
fn loading_and_failing_are_screens() {
    let mut stage = Stage::of(&Script::default());
    stage.apply(EventKind::Loading { stage: "weights".to_owned(), done: 42, total: 100 });
    insta::assert_snapshot!("loading", stage.screen(80, 16));
    stage
        .apply(EventKind::Failed { message: "logits of round 7 are not numbers; try --dtype f32\u{1b}[2J".to_owned() });
    insta::assert_snapshot!("failed", stage.screen(80, 16));
    stage.press("<C-c>");
    assert!(stage.app.quits());
}

#[test]
fn where_no_engine_begins_the_failure_names_what_needs_none() {
    let other = "draftscope demo --learn needs no model";
    let options = || TuiOptions { without_engine: Some(other.to_owned()), ..TuiOptions::default() };
    let failed = EventKind::Failed { message: "there is no network".to_owned() };
    let mut stage = Stage::new(&Script::default(), options());
    stage.apply(failed.clone());
    stage.shows((60, 16), &["there is no network", other, "quits."]);
    let mut stage = Stage::new(&first_turn(), options());
    stage.apply(failed);
    assert!(!stage.screen(60, 16).contains(other), "this engine had begun");
}

#[test]
fn a_small_screen_says_so() {
    let mut stage = Stage::of(&conversation());
    assert_eq!(stage.screen(59, 16).lines().next(), Some("too small: 59×16, needs 60×16"));
    assert!(!stage.screen(60, 16).contains("too small"));
}

#[test]
fn fates_read_in_monochrome() {
    let options = TuiOptions { no_color: true, theme: Some("default".to_owned()), ..TuiOptions::default() };
    let mut stage = Stage::new(&first_turn(), options);
    let buffer = stage.draw(80, 24).backend().buffer().clone();
    let letter = |modifier: Modifier| match modifier {
        m if m.contains(Modifier::CROSSED_OUT | Modifier::DIM) => 'X',
        m if m.contains(Modifier::CROSSED_OUT) => 'x',
        m if m.contains(Modifier::UNDERLINED) => 'u',
        m if m.contains(Modifier::BOLD) => 'b',
        m if m.contains(Modifier::DIM) => 'd',
        _ => ' ',
    };
    let mut shown = String::new();
    for y in 2..9 {
        let text: String = (1..49).map(|x| buffer[(x, y)].symbol()).collect();
        let look: String = (1..49).map(|x| letter(buffer[(x, y)].modifier)).collect();
        shown.push_str(&format!("{}\n{}\n", text.trim_end(), look.trim_end()));
    }
    insta::assert_snapshot!(shown);
    let colours = buffer.content().iter().filter(|cell| {
        use ratatui::style::Color::Reset;
        (cell.fg, cell.bg) != (Reset, Reset)
    });
    assert_eq!(colours.count(), 0);
}

#[test]
fn a_slowdown_is_said_plainly() {
    let mut script = Script::prompted("hi", "Hello");
    for _ in 0..7 {
        script.round(&[(" a", 0.5), (" b", 0.5)], &[(" c", 0.5), (" d", 0.5), (" e", 0.5)]);
        script.plain(" c");
    }
    script.finish(Lane::Speculative, StopReason::Eos);
    let screen = Stage::of(&script).screen(160, 45);
    assert!(screen.contains("±0.01 the plain speed"), "{screen}");
    assert!(screen.contains("= 1.00 tokens per round") && screen.contains("÷ time of 1.43 plain tokens"), "{screen}");
    let digits = crate::widgets::digits::rows("0.70×", false);
    assert!(digits.iter().all(|row| screen.contains(row.trim_end())), "{screen}");
}

#[test]
fn sending_carries_the_whole_conversation() {
    let mut stage =
        Stage::new(&first_turn(), TuiOptions { system: Some("Be brief.".to_owned()), ..TuiOptions::default() });
    stage.press("And<A-Enter>then?<Enter>");
    let Some(Command::Generate { prompt: Prompt::Chat(messages) }) = stage.sent.first() else {
        panic!("a chat prompt is sent");
    };
    let roles: Vec<_> = messages.iter().map(|m| m.role).collect();
    assert_eq!(roles, [Speaker::System, Speaker::User, Speaker::Assistant, Speaker::User]);
    assert!(messages[2].content.starts_with("The sky is blue because of a phenomenon"));
    assert_eq!(messages[3].content, "And\nthen?");
    assert!(stage.app.talk.editor.is_empty());
    assert_eq!(stage.app.place.pane, Pane::Answer);
}

#[test]
fn a_new_conversation_forgets_and_raw_prompts_stand_alone() {
    let stage = Stage::of(&first_turn()).pressed("<C-n>hi<Enter>");
    let alone = Message { role: Speaker::User, content: "hi".to_owned() };
    let prompt = Prompt::Chat(vec![alone]);
    assert_eq!(stage.sent, [Command::Generate { prompt }]);
    let mut stage = Stage::new(&first_turn(), TuiOptions { raw: true, ..TuiOptions::default() });
    stage.press("hi<Enter>");
    let prompt = Prompt::Raw("hi".to_owned());
    assert_eq!(stage.sent, [Command::Generate { prompt }]);
}

#[test]
fn a_paste_is_never_sent() {
    let mut stage = Stage::of(&first_turn()).pressed("<Tab>");
    paste(&mut stage.app, &mut stage.time, "fn main() {\r\n\tbody\r}\n\u{1b}[31m");
    assert_eq!(stage.app.talk.editor.text(), "fn main() {\n    body\n}\n[31m");
    assert_eq!(stage.app.place.pane, Pane::Prompt);
    assert!(stage.sent.is_empty());
}

#[test]
fn ctrl_c_stops_first_and_quits_second() {
    let mut stage = Stage::of(&conversation()).pressed("<C-c>");
    assert_eq!(stage.sent, [Command::Stop]);
    assert!(!stage.app.quits());
    stage.press("<C-c>");
    assert_eq!(stage.sent, [Command::Stop, Command::Shutdown]);
    assert!(stage.app.quits());
    let idle = Stage::of(&first_turn()).pressed("<C-c>");
    assert!(idle.app.quits());
}

#[test]
fn ctrl_c_stops_each_answer_anew() {
    let mut stage = typed_twice();
    stage.press("<C-c>");
    stage.apply(EventKind::Prompted { turn: 2, text: "hi".to_owned(), branch: None });
    stage.apply(EventKind::Finished { reason: StopReason::Stopped });
    stage.press("<Enter>ho<Enter><C-c>");
    assert!(!stage.app.quits());
    assert_eq!(stage.sent.iter().filter(|c| **c == Command::Stop).count(), 2);
}

#[test]
fn the_end_of_an_answer_changes_the_meaning_of_no_key() {
    for keys in [".>", "<Up>"] {
        let mut stage = typed_twice();
        stage.press(keys).shows((80, 24), &[" Keys: "]);
        stage.apply(EventKind::Prompted { turn: 2, text: "hi".to_owned(), branch: None });
        stage.apply(EventKind::Finished { reason: StopReason::Eos });
        assert_eq!(stage.app.place.pane, Pane::Answer, "{keys}");
        stage.press("<Esc>").shows((80, 24), &[" Keys: Enter prompt ", "Enter or i: type the next prompt"]);
        stage.press("X").shows((80, 24), &["'X' does nothing here; to type a prompt, press i first"]);
        assert!(stage.app.talk.editor.is_empty());
        stage.press("<Enter>X").shows((80, 24), &[" Typing: Enter send  Esc leave the prompt"]);
        assert_eq!((stage.app.place.pane, stage.app.talk.editor.text()), (Pane::Prompt, "X".to_owned()));
        stage.press("<Esc>").shows((80, 24), &[" Keys: ", "│X "]);
    }
}

#[test]
fn with_a_token_selected_enter_opens_it() {
    let stage = Stage::of(&first_turn()).pressed("<Esc><Left><Enter>");
    assert_eq!(stage.app.place.page, page::Page::Inspect);
    let stage = Stage::of(&first_turn()).pressed("<Esc><Left><Esc><Enter>");
    assert_eq!((stage.app.place.page, stage.app.place.pane), (page::Page::Chat, Pane::Prompt));
}

#[test]
fn a_prompt_is_kept_while_an_answer_runs() {
    let mut stage = Stage::of(&conversation()).pressed("wait<Enter>");
    assert!(stage.sent.is_empty());
    assert_eq!(stage.app.talk.editor.text(), "wait");
    stage.shows((80, 24), &["still answering"]);
}

#[test]
fn a_refused_prompt_frees_the_way() {
    let mut stage = typed_twice();
    stage.shows((80, 24), &["● sent"]);
    stage.apply(EventKind::Notice { message: "the prompt is longer than the context".to_owned() });
    stage.shows((80, 24), &["! the prompt is longer"]);
    assert_eq!(stage.app.place.pane, Pane::Prompt);
    stage.press("<Up>");
    assert_eq!(stage.app.talk.editor.text(), "hi");
}

#[test]
fn prompts_are_recalled_with_up_and_down() {
    let mut stage = typed_twice();
    stage.apply(EventKind::Notice { message: String::new() });
    stage.press("ho<Enter>");
    stage.apply(EventKind::Notice { message: String::new() });
    stage.press("<Up><Up>");
    assert_eq!(stage.app.talk.editor.text(), "hi");
    stage.press("<Down>");
    assert_eq!(stage.app.talk.editor.text(), "ho");
    stage.press("<Down>");
    assert!(stage.app.talk.editor.is_empty());
    stage.press("a<C-j>b<Up>");
    assert_eq!(stage.app.talk.editor.text(), "a\nb");
}

#[test]
fn settings_keys_become_commands() {
    let mut stage = Stage::of(&first_turn()).pressed("<Tab>+<A-Up>-r))bb");
    let sampling = draftscope_protocol::Sampling { temperature: 0.1, ..Default::default() };
    let warmer = draftscope_protocol::Sampling { temperature: 0.2, ..sampling };
    assert_eq!(
        stage.sent,
        [
            Command::SetDraftLen { draft_len: 4 },
            Command::SetDraftLen { draft_len: 5 },
            Command::SetDraftLen { draft_len: 4 },
            Command::SetRule { rule: VerifyRule::Rejection },
            Command::SetSampling { sampling },
            Command::SetSampling { sampling: warmer },
            Command::SetBaseline { baseline: Baseline::Off },
            Command::SetBaseline { baseline: Baseline::PROBE },
        ]
    );
    stage.shows((120, 40), &["k = 3 → 4"]);
}

#[test]
fn limits_of_settings_hold() {
    let stage = Stage::of(&first_turn()).pressed("<Tab>-----(");
    assert_eq!(stage.sent[4], Command::SetDraftLen { draft_len: 0 });
    let Command::SetSampling { sampling } = &stage.sent[5] else {
        panic!("temperature is sampling");
    };
    assert_eq!(sampling.temperature, 0.0);
}

#[test]
fn the_first_line_says_who_chooses_k() {
    let script = Script::started_with(|head| head.settings.draft_len_mode = DraftLenMode::Auto);
    assert!(Stage::of(&script).screen(120, 40).contains("Drafter module, k ≤ 3 (auto) "));
    assert!(Stage::of(&first_turn()).screen(120, 40).contains("Drafter module, k = 3 "));
    // k does not limit copies
    let script = Script::started_with(|head| head.settings.drafter = DrafterKind::DEFAULT);
    assert!(Stage::of(&script).screen(200, 60).contains("Drafter copies and module, k = 3 besides copies "));
}

#[test]
fn from_the_engines_k_one_goes_to_a_usual_one() {
    let chosen = |keys: &str| {
        let script = Script::started_with(|head| {
            (head.settings.draft_len_mode, head.settings.draft_len) = (DraftLenMode::Auto, 8);
        });
        let mut stage = Stage::of(&script);
        stage.shows((120, 40), &["k ≤ 8 (auto) "]);
        stage.press(keys);
        stage.sent
    };
    assert_eq!(chosen("<Tab>+"), [Command::SetDraftLen { draft_len: 4 }]);
    assert_eq!(chosen("<Tab>-"), [Command::SetDraftLen { draft_len: 2 }]);
}

#[test]
fn split_asks_for_a_race_once() {
    let script = Script::started_with(|head| head.settings.baseline = Baseline::Probe(32));
    let mut stage = Stage::of(&script).pressed("<F2>");
    let race = Command::SetBaseline { baseline: Baseline::Race };
    assert_eq!(stage.sent, std::slice::from_ref(&race));
    stage.shows((120, 40), &["Plain timed beside → runs in full", "F2 ends the race"]);
    stage.press("<F2>");
    let before = Command::SetBaseline { baseline: Baseline::Probe(32) };
    assert_eq!(stage.sent, [race.clone(), before], "once more ends it");
    stage.shows((120, 40), &["the race is over"]);
    assert!(!stage.screen(120, 40).contains("runs in full"));
    stage.press("<F2>");
    assert_eq!((stage.sent.len(), &stage.sent[2]), (3, &race));
}

#[test]
fn a_race_that_was_not_the_split_views_goes_on() {
    let script = Script::started_with(|head| head.settings.baseline = Baseline::Race);
    assert_eq!(Stage::of(&script).pressed("<F2><F2>").sent, [], "it was set before");
    let script = Script::started_with(|head| head.settings.baseline = Baseline::Probe(32));
    let stage = Stage::of(&script).pressed("<F2><Esc>b<F2>");
    let last = Command::SetBaseline { baseline: Baseline::Off };
    assert_eq!(stage.sent.last(), Some(&last), "somebody has set something else since");
}

#[test]
fn pause_and_steps_become_commands() {
    let mut stage = Stage::of(&conversation()).pressed("<Tab><Space>.>");
    assert_eq!(stage.sent, [Command::Pause, Command::StepPhase, Command::StepRound]);
    stage.apply(EventKind::Paused);
    stage.press("<Space>");
    assert_eq!(stage.sent.last(), Some(&Command::Resume));
    stage.shows((80, 24), &["‖ paused · verifying"]);
}

#[test]
fn rounds_are_walked_and_live_is_found_again() {
    let mut stage = Stage::of(&conversation());
    stage.walk(
        (80, 24),
        &[
            ("<Tab><S-Left><S-Left><S-Left><S-Left>", "Round 6 (selected)"),
            ("N", "Round 5 (selected)"),
            ("<Esc>", "Round 10 (live)"),
        ],
    );
    assert_eq!(stage.app.place.pane, Pane::Answer);
}

#[test]
fn scrolling_up_leaves_the_end_and_end_returns() {
    let mut stage = Stage::of(&conversation());
    stage.draw(60, 16);
    stage.press("<Tab><Up><Up>");
    assert!(matches!(stage.app.place.scroll, Scroll::Top(_)));
    stage.press("<End>");
    assert_eq!(stage.app.place.scroll, Scroll::Follow);
    stage.press("<Home><PageDown><PageDown><PageDown>");
    assert_eq!(stage.app.place.scroll, Scroll::Follow);
}

#[test]
fn discarded_drafts_can_be_shown_and_hidden() {
    let mut stage = Stage::of(&first_turn());
    stage.shows((120, 40), &["The ✗3sky is blue because"]);
    stage.walk((120, 40), &[("<Tab>d", "The color of the sky is"), ("d", "The sky is blue because")]);
}

#[test]
fn a_recording_takes_no_prompts() {
    let script = Script::started_with(|head| head.capabilities = Capabilities::default());
    let mut stage = Stage::of(&script).pressed("hi");
    assert!(stage.sent.is_empty());
    stage.shows((80, 24), &["this is a recording"]);
}

#[test]
fn escape_sequences_in_tokens_never_reach_the_screen() {
    let mut script = Script::prompted("a\u{1b}]0;evil\u{7}b", "\u{1b}[2J");
    script.round(&[("\u{9b}31m", 0.5)], &[("\u{1b}c", 0.5), ("\u{202e}", 0.5)]);
    let mut stage = Stage::of(&script);
    let buffer = stage.draw(120, 40).backend().buffer().clone();
    let text: String = buffer.content().iter().map(|cell| cell.symbol()).collect();
    assert!(text.chars().all(|c| !c.is_control()));
    assert!(text.contains("␛[2J"));
}

#[test]
fn an_unknown_theme_is_a_message_and_every_theme_is_reached() {
    let options = TuiOptions { theme: Some("drak".to_owned()), ..TuiOptions::default() };
    let mut stage = Stage::new(&first_turn(), options);
    stage.shows((120, 40), &["there is no theme 'drak'"]);
    stage.press("<Tab>");
    let mut names = vec![stage.app.theme().name.clone()];
    for _ in 1..theme::BUNDLED.len() {
        stage.press("t");
        names.push(stage.app.theme().name.clone());
    }
    names.sort();
    let all = ["ansi16", "catppuccin", "colorblind", "default", "gruvbox", "high-contrast", "light", "mono", "nord"];
    assert_eq!(names, all);
}

#[test]
fn options_ask_for_a_race_and_send_a_prompt() {
    let script = Script::started_with(|head| head.settings.baseline = Baseline::Off);
    let options = TuiOptions { split: true, initial_prompt: Some("hi".to_owned()), ..TuiOptions::default() };
    let mut stage = Stage::new(&script, options);
    let commands = update::greet(&mut stage.app, &mut stage.time);
    assert!(matches!(commands[..], [Command::SetBaseline { baseline: Baseline::Race }, Command::Generate { .. }]));
}

#[test]
fn ended_turns_look_the_same_from_the_cache() {
    let mut stage = Stage::of(&conversation());
    let fresh = stage.screen(80, 50);
    assert_eq!(stage.screen(80, 50), fresh);
    stage.screen(100, 50);
    stage.press("<Tab>d");
    assert_ne!(stage.screen(80, 50), fresh);
    stage.press("ddi");
    assert_eq!(stage.screen(80, 50), fresh);
}

#[test]
fn a_long_draft_is_shown_around_the_chosen_column() {
    let mut script = Script::prompted("hi", "Hello");
    let drafts: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"].map(|t| (t, 0.5)).to_vec();
    let mut target = drafts.clone();
    target.push(("m", 0.5));
    script.round(&drafts, &target);
    let mut stage = Stage::of(&script);
    stage.shows((80, 24), &["✚m 0.50", "‹"]);
    stage.press("<Tab>hhhhhhhhhhhhh").shows((80, 24), &["draft  q a 0.50", "›"]);
}

fn any_key() -> impl Strategy<Value = KeyEvent> {
    let code = prop_oneof![
        6 => any::<char>().prop_map(KeyCode::Char),
        8 => prop::sample::select(" .><NnhlkjgGdc+-r][bt?iq=123456,{}@wu/:fzoys()J;'veL".chars().collect::<Vec<_>>()).prop_map(KeyCode::Char),
        4 => prop::sample::select(vec![
            KeyCode::Enter, KeyCode::Esc, KeyCode::Tab, KeyCode::Up, KeyCode::Down, KeyCode::Left, KeyCode::Right,
            KeyCode::Home, KeyCode::End, KeyCode::PageUp, KeyCode::PageDown, KeyCode::Backspace, KeyCode::Delete,
            KeyCode::F(1), KeyCode::F(2), KeyCode::BackTab,
        ]),
    ];
    let modifiers = prop::sample::select(vec![
        KeyModifiers::NONE,
        KeyModifiers::NONE,
        KeyModifiers::ALT,
        KeyModifiers::SHIFT,
        KeyModifiers::CONTROL,
    ]);
    (code, modifiers).prop_map(|(code, modifiers)| KeyEvent::new(code, modifiers))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_keys_and_no_size_panic(
        keys in proptest::collection::vec(any_key(), 0..12),
        sizes in proptest::collection::vec((1u16..160, 1u16..60), 1..4),
        script in prop::sample::select(vec![conversation, race::race, panels::trees, lattice::script]),
        page in prop::sample::select(crate::app::place::page::Page::ALL),
        cut in 0usize..400,
    ) {
        let script = script();
        let options = TuiOptions { page, ..TuiOptions::default() };
        let mut stage = Stage::folded(&script.events[..cut.min(script.events.len())], options);
        for key in keys {
            stage.key(key);
            for (width, height) in &sizes {
                stage.draw(*width, *height);
            }
        }
        stage.draw(1, 1);
    }

    #[test]
    fn no_events_panic(events in any_events(), keys in proptest::collection::vec(any_key(), 0..6), size in (1u16..160, 1u16..60)) {
        let mut stage = Stage::folded(&events, TuiOptions::default());
        stage.draw(size.0, size.1);
        for key in keys {
            stage.key(key);
        }
        stage.app.place.split = true;
        stage.draw(size.0, size.1);
    }
}
