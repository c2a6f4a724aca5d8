//! Drawing: the wiring of an MTP module, with the sizes of the models of the run, and which KV cache it uses.
//!
//! Invariant: sizes are those of the header; without one the drawing has letters only.

use super::super::prelude::*;

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

fn large(screen: Screen) -> Vec<String> {
    let [block, cache, d] = sizes(screen);
    LARGE.iter().map(|line| line.replace("{block}", &block).replace("{cache}", &cache).replace("{d}", &d)).collect()
}

/// The same in a few lines.
fn small(screen: Screen, width: u16) -> Vec<String> {
    let [block, cache, d] = sizes(screen);
    let text = format!(
        "shared embedding of the token just committed → norm ┐\n\
         the target's hidden state at that place      → norm ┴ concatenation 2 d → projection d\n\
         → {block} {cache} → norm → shared head → q\n\
         next draft: the module's own output in place of the hidden state {d}"
    );
    wrapped(&text, width, Style::default()).iter().map(ToString::to_string).collect()
}

/// The block, the cache that it reads, and d.
fn sizes(screen: Screen) -> [String; 3] {
    let step = screen.app.lesson.at(&screen.app.lessons).map(|(_, step)| step);
    let shares = step.and_then(|step| step.example.as_ref()).is_some_and(|example| example.shares_cache);
    let header = screen.session.header();
    let module = header.and_then(|h| h.drafters.iter().chain(&h.drafter).find(|d| d.weight_bytes > 0));
    let d = header.map_or(String::new(), |header| format!("(here d = {})", header.model.d_model));
    if shares {
        return ["some layers with queries only".to_owned(), "that read the target's KV cache".to_owned(), d];
    }
    let cache = match module.map(|module| module.kv_bytes_per_token) {
        Some(bytes) if bytes > 0 => format!("with its own KV cache ({bytes} B a position)"),
        Some(_) => "with the target's KV cache".to_owned(),
        None => "with its own KV cache".to_owned(),
    };
    ["one transformer block".to_owned(), cache, d]
}
