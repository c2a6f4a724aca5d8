//! The newest prompt as the model gets it: with its template, earlier turns and special tokens.
//!
//! Returns the first line of the last page, at which scrolling ends.

use crate::view::prelude::*;
use crate::view::screens;

pub(in crate::view) fn render(screen: Screen, scroll: usize, area: Rect, frame: &mut Frame) -> usize {
    let area = screens::centre(area, area.width.min(110), area.height);
    let sent = screen.session.sent_prompt();
    let title = match sent.tokens() {
        0 => " The prompt as the model gets it ".to_owned(),
        count => format!(" The prompt as the model gets it: {} ", counted(count, "token")),
    };
    let hint = screen.keys(Context::Panel, &[(CHOOSE, "scroll"), (LEAVE, "closes")]);
    let block = screen.panel(title).bottom(Line::styled(format!(" {hint} "), screen.theme[Role::TextDim]));
    let inner = screen.over(block, area, frame);
    if sent.tokens() == 0 {
        let none = "No prompt has been read yet, or the engine does not report its tokens.";
        put(wrapped(none, inner.width, screen.theme[Role::TextDim]), inner, frame);
        return 0;
    }
    let mut flow = Flow::new(inner.width);
    for (text, special) in sent.parts() {
        flow.push(text, screen.theme[if special { Role::Key } else { Role::Text }]);
    }
    let lines = flow.finish();
    let rows = usize::from(inner.height).max(1);
    let last = lines.len().saturating_sub(rows);
    put(lines.into_iter().skip(scroll.min(last)).take(rows).collect(), inner, frame);
    last
}
