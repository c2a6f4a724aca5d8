//! A screen without box, block and braille glyphs, for terminals and fonts that lack them.
//!
//! Invariant: every glyph that this program draws by itself has a counterpart in ASCII of the same
//! width. The whole screen is gone over, so the same glyphs in the text of the user and of the model
//! become ASCII too; every other character of it is left as it is, and recordings hold the text itself.

use ratatui::buffer::Buffer;

/// Glyphs of the program and their counterparts.
const TABLE: &[(&str, &str)] = &[
    ("─━═┈┄╌⎯", "-"),
    ("│┃║", "|"),
    ("┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛", "+"),
    ("█▉▊▋▇▆▓", "#"),
    ("▌▍▅▄▒", "="),
    ("▎▏▃▂▁░", "-"),
    ("✓", "="),
    ("✗⚠", "!"),
    ("↻", "~"),
    ("✚", "+"),
    ("○", "%"),
    ("◌", "?"),
    ("●", "*"),
    ("•▪⋅", "."),
    ("·", "_"),
    ("✖×", "x"),
    ("±", "~"),
    ("÷", "/"),
    ("−–—", "-"),
    ("…", "."),
    ("‖", "="),
    ("❯▸▶›→⏵↳", ">"),
    ("‹←⏴◀", "<"),
    ("↑", "^"),
    ("↓", "v"),
    ("⏎", "$"),
    ("⇥", "_"),
    ("≥", ">"),
    ("≤", "<"),
    ("≈", "~"),
    ("Σ", "S"),
    ("⑂", "Y"),
    ("★", "*"),
    ("✎", "&"),
    ("◆", "#"),
    ("≠", "/"),
    ("■", "#"),
    ("␛␡", "?"),
    ("\u{2019}", "'"),
];

/// Replaces the program's own glyphs.
pub(super) fn replace(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        let symbol = cell.symbol();
        if symbol.is_ascii() {
            continue;
        }
        let is_braille = symbol.chars().all(|c| ('\u{2801}'..='\u{28ff}').contains(&c));
        let known = TABLE.iter().find(|(glyphs, _)| glyphs.contains(symbol)).map(|(_, plain)| *plain);
        let plain = if is_braille { Some("*") } else { known.or((symbol == "\u{2800}").then_some(" ")) };
        if let Some(plain) = plain {
            cell.set_symbol(plain);
        }
    }
}
