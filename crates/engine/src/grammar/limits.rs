//! What a grammar may cost. A schema comes from anywhere, so every step has a limit, and the first line of the reason says
//! which one was reached.

use llguidance::api::ParserLimits;

/// Most bytes of a grammar's text.
pub const MOST_BYTES: usize = 1 << 20;

/// Most lines of a grammar in Lark, which has a rule on each at most.
pub(super) const MOST_LINES: usize = 20_000;

/// Limits of compiling and of each mask: some 20 ms of work and about 100 MB of lexer states.
pub(super) fn limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: 2_000,
        initial_lexer_fuel: 1_000_000,
        step_lexer_fuel: 200_000,
        step_max_items: 50_000,
        max_lexer_states: 50_000,
        max_grammar_size: 500_000,
        precompute_large_lexemes: false,
        verbose_errors: false,
    }
}

/// Longest reason that is shown, in characters.
const LONGEST: usize = 300;

/// The reason in one line: neither a stack trace nor the state of the parser.
pub(super) fn reason(error: &dyn std::fmt::Display) -> String {
    let text = format!("{error:#}");
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("no reason was given");
    if first.starts_with("panic") {
        return "llguidance, which reads grammars, fails on it; write it in another form".to_owned();
    }
    // the cause may stand below a picture of the place
    let cause = lines.find(|line| line.starts_with("error:")).filter(|_| first.ends_with(':'));
    let line = &cause.map_or_else(|| first.to_owned(), |cause| format!("{first} {}", cause["error:".len()..].trim()));
    let plain = line.chars().filter(|c| !c.is_control()).take(LONGEST).collect::<String>();
    if line.chars().count() > LONGEST { format!("{plain}…") } else { plain }
}
