//! Drawing: the wiring of an MTP module, with the sizes of the models of the run, and which KV cache it uses.
//!
//! Invariant: sizes are those of the header; without one the drawing has letters only.

use crate::view::learn::hidden::hides;
use crate::view::prelude::*;
use draftscope_learn::lesson::Hidden;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" An MTP module "), area, frame);
    let is_large = usize::from(inner.height) >= LARGE.len() && inner.width >= WIDTH;
    put(if is_large { styled(screen, large(screen)) } else { content(screen, inner.width) }, inner, frame);
}

/// Height that draws it large, with its frame.
pub(super) const WANTED: u16 = LARGE.len() as u16 + FRAME;

/// Width of the large drawing.
pub(super) const WIDTH: u16 = 66;

/// All lines of the small one in so many columns.
pub(super) fn content(screen: Screen, width: u16) -> Vec<Line<'static>> {
    styled(screen, small(screen, width))
}

fn styled(screen: Screen, lines: Vec<String>) -> Vec<Line<'static>> {
    lines.into_iter().map(|line| Line::styled(line, screen.theme[Role::Text])).collect()
}

/// The drawing; words in braces are filled in.
const LARGE: [&str; 17] = [
    "  token just committed     the target's hidden state",
    "         │                  from which it was made",
    "  shared embedding                  │",
    "         │ d                        │ d",
    "       norm                       norm",
    "         └────────────┬─────────────┘",
    "             concatenation: 2 d   {d}",
    "                      │",
    "             projection: 2 d → d",
    "                      │",
    "           {block}",
    "           {cache}",
    "                      │",
    "                    norm ──► for the next draft in",
    "                      │      place of the hidden state",
    "                 shared head",
    "                      │  q: the token after",
];

/// What is drawn otherwise for a drafter that reads the target's KV cache: Gemma 4's has no norms before its projection, a
/// width and a head of its own, and hands a state back through a second projection.
const SHARING: [(&str, &str); 4] = [
    ("       norm                       norm", "         │                          │"),
    ("projection: 2 d → d", "projection: 2 d → its own width"),
    ("norm ──► for the next draft in", "norm ──► projected to d, for the next draft in"),
    ("                 shared head", "                 its own head"),
];

/// Whether the step is about a drafter that reads the target's KV cache.
fn shares_cache(screen: Screen) -> bool {
    let step = screen.app.learning.step();
    step.and_then(|step| step.example.as_ref()).is_some_and(|example| example.shares_cache)
}

fn large(screen: Screen) -> Vec<String> {
    let [block, cache, d] = sizes(screen);
    let shares = shares_cache(screen);
    let drawn = |line: &&str| {
        let line = line.replace("{block}", &block).replace("{cache}", &cache).replace("{d}", &d);
        let other = SHARING.iter().filter(|_| shares);
        other.fold(line, |line, (usual, own)| line.replace(usual, own))
    };
    let lines = LARGE.iter().map(drawn);
    if !hides(screen, Hidden::State) {
        return lines.collect();
    }
    let hidden = |line: String| STATE.iter().fold(line, |line, (shown, asked)| line.replace(shown, asked));
    lines.map(hidden).collect()
}

/// What a question leaves open of the drawing: what the module reads besides the token.
const STATE: [(&str, &str); 3] =
    [("the target's hidden state", "?"), (" from which it was made", ""), ("place of the hidden state", "its place")];

/// The same in a few lines.
fn small(screen: Screen, width: u16) -> Vec<String> {
    let [block, cache, d] = sizes(screen);
    let text = if shares_cache(screen) {
        format!(
            "the target's embedding of the token just committed ┐\n\
             the target's hidden state at that place            ┴ concatenation 2 d → projection to its own width\n\
             → {block} {cache} → norm → its own head → q\n\
             next draft: the module's own output, projected to d, in place of the hidden state {d}"
        )
    } else {
        format!(
            "shared embedding of the token just committed → norm ┐\n\
             the target's hidden state at that place      → norm ┴ concatenation 2 d → projection d\n\
             → {block} {cache} → norm → shared head → q\n\
             next draft: the module's own output in place of the hidden state {d}"
        )
    };
    let asks = hides(screen, Hidden::State);
    let text =
        if asks { SMALL_STATE.iter().fold(text, |text, (shown, asked)| text.replace(shown, asked)) } else { text };
    wrapped(&text, width, Style::default()).iter().map(ToString::to_string).collect()
}

/// The same of the few lines.
const SMALL_STATE: [(&str, &str); 2] = [
    ("the target's hidden state at that place", "?                                      "),
    ("in place of the hidden state", "in its place"),
];

/// The block, the cache that it reads, and d.
fn sizes(screen: Screen) -> [String; 3] {
    let header = screen.session.header();
    let module = header.and_then(|h| h.drafters.iter().chain(&h.drafter).find(|d| d.weight_bytes > 0));
    let d = header.map_or(String::new(), |header| format!("(here d = {})", header.model.d_model));
    if hides(screen, Hidden::Cache) {
        return ["one block or more".to_owned(), "attention: which KV cache?".to_owned(), d];
    }
    if shares_cache(screen) {
        return ["some layers with queries only".to_owned(), "that read the target's KV cache".to_owned(), d];
    }
    let cache = match module.map(|module| module.kv_bytes_per_token) {
        Some(bytes) if bytes > 0 => format!("with its own KV cache ({bytes} B a position)"),
        Some(_) => "with the target's KV cache".to_owned(),
        None => "with its own KV cache".to_owned(),
    };
    ["one transformer block".to_owned(), cache, d]
}
