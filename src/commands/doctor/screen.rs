//! The terminal: whether there is one, its size, colours, characters and mouse.

use std::io::IsTerminal;

use draftscope::tui::{ColorDepth, MIN_SIZE, TerminalModes, TuiOptions, fitting_theme, terminal_modes};
use serde_json::json;

use super::super::config::Parsed;
use super::super::terminal::can_draw;
use super::check::Check;

/// Everything about the terminal; one line if there is none.
pub(super) fn checks(options: &TuiOptions, parsed: &Parsed) -> Vec<Check> {
    if !can_draw() {
        let advice = "answers are plain text here; the screen needs a terminal";
        return vec![Check::note("terminal", missing(), advice)];
    }
    let look = &parsed.cli.chat.screen.look;
    let modes = terminal_modes();
    let fitting = || if options.no_color { None } else { fitting_theme().map(str::to_owned) };
    let theme = look.theme.clone().or_else(fitting);
    vec![
        size(crossterm::terminal::size().ok(), modes.synchronized),
        colors(options, theme.as_deref()),
        characters(options.ascii || look.ascii),
        mouse(modes, look.no_mouse),
    ]
}

/// Why there is no screen.
fn missing() -> &'static str {
    match (std::io::stdin().is_terminal(), std::io::stdout().is_terminal()) {
        (_, false) => "standard output is no terminal",
        (false, true) => "standard input is no terminal",
        (true, true) => "TERM is dumb",
    }
}

fn size(size: Option<(u16, u16)>, synchronized: Option<bool>) -> Check {
    let term = std::env::var("TERM").unwrap_or_default();
    let (width, height) = MIN_SIZE;
    let Some((columns, rows)) = size else {
        return Check::fails("terminal", format!("{term}, of unknown size"), "use another terminal");
    };
    let found = format!("{term}, {columns} × {rows}");
    let details = json!({ "term": term, "columns": columns, "rows": rows, "synchronized_output": synchronized });
    match columns >= width && rows >= height {
        true => Check::ok("terminal", found),
        false => Check::fails("terminal", found, format!("enlarge it to {width} × {height} or more")),
    }
    .with(details)
}

fn colors(options: &TuiOptions, theme: Option<&str>) -> Check {
    let name = theme.unwrap_or(if options.no_color { "mono" } else { "default" });
    let details = json!({ "depth": format!("{:?}", options.depth), "no_color": options.no_color, "theme": name });
    if options.no_color {
        let advice = "marks replace colours; unset NO_COLOR for colours";
        return Check::note("colours", "none, because NO_COLOR is set", advice).with(details);
    }
    match options.depth {
        ColorDepth::True => Check::ok("colours", format!("16 million, theme {name}")),
        ColorDepth::Indexed => Check::ok("colours", format!("256, theme {name}")),
        ColorDepth::Ansi | ColorDepth::Mono => {
            let advice = "if your terminal has more, set COLORTERM=truecolor";
            Check::note("colours", format!("16 by the name in TERM, theme {name}"), advice)
        }
    }
    .with(details)
}

fn characters(ascii: bool) -> Check {
    match ascii {
        false => Check::ok("characters", "Unicode; if boxes or bars look wrong, start with --ascii"),
        true => Check::note("characters", "ASCII", "set LANG to a locale of UTF-8, such as C.UTF-8, for drawings"),
    }
    .with(json!({ "ascii": ascii }))
}

fn mouse(modes: TerminalModes, is_off: bool) -> Check {
    let details = json!({ "reported": modes.mouse, "no_mouse": is_off });
    match modes.mouse {
        _ if is_off => Check::ok("mouse", "left to the terminal (--no-mouse)"),
        Some(true) => Check::ok("mouse", "clicks and the wheel work; Shift selects text in most terminals"),
        Some(false) => Check::note("mouse", "this terminal reports none", "everything works by keys, too"),
        None => Check::ok("mouse", "the terminal does not say whether it reports one; everything works by keys, too"),
    }
    .with(details)
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    #[test]
    fn a_screen_that_is_too_small_fails_and_says_the_size_that_suffices() {
        assert_eq!(size(Some((60, 16)), None).status, Verdict::Ok);
        for small in [(59, 16), (60, 15)] {
            let check = size(Some(small), None);
            assert_eq!(check.status, Verdict::Fails);
            assert_eq!(check.advice.as_deref(), Some("enlarge it to 60 × 16 or more"));
        }
        assert_eq!(size(None, None).status, Verdict::Fails);
    }

    #[test]
    fn colours_and_characters_name_what_changes_them() {
        let options = |no_color, depth| TuiOptions { no_color, depth, ..TuiOptions::default() };
        let advice = |check: Check| check.advice.unwrap_or_default();
        assert!(advice(colors(&options(true, ColorDepth::True), None)).contains("NO_COLOR"));
        assert!(advice(colors(&options(false, ColorDepth::Ansi), None)).contains("COLORTERM"));
        assert_eq!(colors(&options(false, ColorDepth::True), Some("light")).found, "16 million, theme light");
        assert!(advice(characters(true)).contains("UTF-8"));
        assert_eq!(characters(false).status, Verdict::Ok);
    }

    #[test]
    fn a_mouse_that_nobody_reports_is_no_failure() {
        for reported in [None, Some(true), Some(false)] {
            let modes = TerminalModes { mouse: reported, synchronized: None };
            assert_ne!(mouse(modes, false).status, Verdict::Fails);
            assert_eq!(mouse(modes, true).status, Verdict::Ok);
        }
    }
}
