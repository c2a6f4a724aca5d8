//! An answer under a grammar, from the recording that comes with the program: forced tokens have a look of their own, and what
//! the grammar refused is struck where it would have been, with the rule that refused it.

use std::path::Path;

use super::views::styled;
use super::*;
use crate::app::place::page::Page;
use crate::look::theme::Role;
use draftscope_protocol::{DraftRefused, EngineInfo, Grammar, GrammarKind};
use draftscope_session::{Fate, text};

const SIZES: [(u16, u16); 2] = [(140, 42), (80, 24)];

/// The recording at its end, with the first round selected in which the grammar refused what the drafter preferred.
fn recorded(options: TuiOptions) -> (Stage, DraftRefused) {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/traces/json.dscope.jsonl.zst"));
    let recording = draftscope_session::trace::Recording::open(path).unwrap();
    let events: Vec<Event> = recording.reader().unwrap().collect::<Result<_, _>>().unwrap();
    let mut stage = Stage::folded(&events, options);
    let rounds = &stage.time.shown().turns()[0].answer(Lane::Speculative).rounds;
    let has_both = |round: &draftscope_session::Round| {
        round.drafts.iter().any(|draft| draft.forced) && round.refused.iter().any(|refused| refused.q.is_some())
    };
    let index = rounds.iter().position(|round| has_both(round)).unwrap();
    let refused = rounds[index].refused.iter().find(|refused| refused.q.is_some()).unwrap().clone();
    stage.app.place.selected = Some(RoundAt { turn: 0, round: Some(index) });
    stage.app.place.cell = Some(refused.index.into());
    stage.app.place.scroll = Scroll::Selected;
    (stage, refused)
}

fn at(page: Page) -> TuiOptions {
    TuiOptions { page, depth: ColorDepth::True, ..TuiOptions::default() }
}

#[test]
fn a_grammar_at_work_looks_like_this() {
    for page in [Page::Chat, Page::Rounds, Page::Inspect] {
        let (mut stage, _) = recorded(at(page));
        for (width, height) in SIZES {
            let shown = styled(stage.draw(width, height).backend().buffer());
            insta::assert_snapshot!(format!("grammar_{}_{width}", page.name()), shown);
        }
    }
}

#[test]
fn a_grammar_at_work_reads_in_ascii_without_colour() {
    for page in [Page::Chat, Page::Rounds, Page::Inspect] {
        let (mut stage, _) = recorded(TuiOptions { page, ascii: true, no_color: true, ..TuiOptions::default() });
        let shown = stage.screen(140, 42);
        assert!(shown.is_ascii(), "{shown}");
        insta::assert_snapshot!(format!("grammar_{}_ascii", page.name()), shown);
    }
}

#[test]
fn every_place_names_what_refused_a_draft() {
    let (mut stage, refused) = recorded(at(Page::Rounds));
    let names = ["refused by the JSON schema", "it expects"];
    stage.shows((140, 42), &names);
    stage.app.place.page = Page::Inspect;
    let shown = stage.screen(140, 42).split_whitespace().collect::<Vec<_>>().join(" ");
    let name = text::inline(&refused.token);
    assert!(shown.contains(&format!("{name} (q {:.2})", refused.q.unwrap())), "{shown}");
}

/// Words of the answer in the style of a role.
fn words(stage: &mut Stage, role: Role) -> String {
    let wanted = stage.app.theme()[role];
    let buffer = stage.draw(140, 42).backend().buffer().clone();
    let is_meant =
        |cell: &ratatui::buffer::Cell| Some(cell.fg) == wanted.fg && cell.modifier.contains(wanted.add_modifier);
    let legend = |y: u16| (0..140).map(|x| buffer[(x, y)].symbol()).collect::<String>().contains("accepted");
    let rows = (0..42).filter(|y| !legend(*y));
    rows.flat_map(|y| (0..140).map(move |x| (x, y)))
        .filter(|at| is_meant(&buffer[*at]))
        .map(|at| buffer[at].symbol().to_owned())
        .collect()
}

#[test]
fn the_answer_has_the_forced_and_the_refused_tokens() {
    let (mut stage, refused) = recorded(at(Page::Chat));
    stage.app.place.cell = None;
    let answer = stage.time.shown().turns()[0].answer(Lane::Speculative);
    let is_kept = |fate: Fate| matches!(fate, Fate::Committed(_));
    let forced: Vec<_> = answer.transcript().filter(|token| token.forced && is_kept(token.fate)).collect();
    assert!(forced.len() > 5);
    let forced: String = forced.iter().map(|token| token.piece.lossy().into_owned()).collect();
    let squeeze = |text: &str| text.split_whitespace().collect::<String>();
    let shown = squeeze(&words(&mut stage, Role::TokenForced));
    assert!(shown.starts_with(&squeeze(&forced)), "{shown}\n{forced}");
    let struck = squeeze(&words(&mut stage, Role::TokenRefused));
    assert!(struck.contains(&squeeze(&refused.token.lossy())), "{struck}");
}

#[test]
fn an_attached_server_s_p_is_said_to_be_before_the_mask() {
    let grammar = Grammar { kind: GrammarKind::JsonSchema, text: "{}".to_owned() };
    let says = |engine: Option<EngineInfo>| {
        let mut script = first_turn();
        script.head(|head| (head.grammar, head.engine) = (Some(grammar.clone()), engine));
        let mut stage = Stage::new(&script, at(Page::Inspect));
        let shown = stage.screen(140, 42).split_whitespace().collect::<Vec<_>>().join(" ");
        shown.contains("p is that before the mask of the JSON schema")
    };
    assert!(says(Some(EngineInfo::default())) && !says(None));
}

#[test]
fn the_legend_and_the_help_explain_the_marks() {
    let (mut stage, _) = recorded(at(Page::Chat));
    stage.shows((140, 42), &["forced", "refused"]);
    stage.app.place.page = Page::Rounds;
    stage.press("?").press("/forced").shows((140, 42), &["accepted and forced: the grammar allowed no other token"]);
    stage
        .press("<Esc>")
        .press("/refused")
        .shows((140, 42), &["refused: the drafter preferred it, the grammar forbids it"]);
    let mut free = Stage::of(&first_turn());
    assert!(!free.screen(140, 42).contains("forced"), "without a grammar nothing speaks of one");
}
