//! Drawing: the wiring of an MTP module, with the sizes of the models of the run, and which KV cache it uses.
//!
//! Invariant: sizes are those of the header; without one the drawing has letters only.

use crate::view::prelude::*;

pub(super) fn render(screen: Screen, area: Rect, frame: &mut Frame) {
    let inner = framed(screen.panel(" An MTP module "), area, frame);
    let lines = if usize::from(inner.height) >= LARGE.len() { large(screen) } else { small(screen, inner.width) };
    let lines: Vec<Line> =
        lines.into_iter().map(|line| Line::styled(cut(&line, inner.width.into()), screen.theme[Role::Text])).collect();
    put(lines, inner, frame);
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
    LARGE.iter().map(drawn).collect()
}

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
    wrapped(&text, width, Style::default()).iter().map(ToString::to_string).collect()
}

/// The block, the cache that it reads, and d.
fn sizes(screen: Screen) -> [String; 3] {
    let header = screen.session.header();
    let module = header.and_then(|h| h.drafters.iter().chain(&h.drafter).find(|d| d.weight_bytes > 0));
    let d = header.map_or(String::new(), |header| format!("(here d = {})", header.model.d_model));
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
