//! Markdown as styled lines.
//!
//! Invariant: every character of the source is on some line or is Markdown that was understood; line breaks of the
//! source stay line breaks. While a text is open (more is to come), what is drawn of it is what it will stay, but for
//! the last line: marks that are half written wait, marks that are not closed yet count as closed (a link has its
//! brackets until it is whole). No line is wider than asked, and no control character comes out. What is understood is
//! CommonMark without HTML, which stays as it is written, as tables do. Code has one colour: syntect's parser needs
//! bincode 1, which nobody maintains, and backtracks on what the model wrote; tree-sitter would parse it in C.

use std::ops::Range;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::flow::{Flow, Tagged};
use super::open_markdown::closed;

/// Nested lists and quotes that are indented; deeper ones use the indentation of the last of them.
const DEPTH: usize = 6;

/// The owner of a part of the source: round and column, as [`Flow::tag`] takes them.
pub(crate) type Owner = (u32, u16);

/// A text and the owners of its parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaggedText {
    text: String,
    /// Where in the text each part begins.
    parts: Vec<(usize, Owner)>,
}

impl TaggedText {
    /// Adds a part. A tab is as wide as four spaces.
    pub(crate) fn push(&mut self, text: &str, owner: Owner) {
        self.parts.push((self.text.len(), owner));
        self.text.extend(text.split('\t').enumerate().flat_map(|(i, part)| [if i > 0 { "    " } else { "" }, part]));
    }

    /// The part at a place of the text, and where it ends.
    fn part_at(&self, at: usize) -> (Owner, usize) {
        let after = self.parts.partition_point(|(start, _)| *start <= at);
        let end = self.parts.get(after).map_or(usize::MAX, |(start, _)| *start);
        (after.checked_sub(1).map_or((0, 0), |i| self.parts[i].1), end)
    }
}

/// How the parts of a text look.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) text: Style,
    pub(crate) heading: Style,
    pub(crate) code: Style,
    /// Style of bullets, bars and addresses.
    pub(crate) dim: Style,
    /// The part of this round has this style.
    pub(crate) chosen: Option<(u32, Style)>,
}

/// Lines, and the owners on each.
pub(crate) type Lines = (Vec<Line<'static>>, Vec<Vec<Tagged>>);

/// The lines of a text; an open one will be continued.
pub(crate) fn lines(source: &TaggedText, is_open: bool, look: Look, width: u16) -> Lines {
    let text = if is_open { closed(&source.text) } else { (&source.text).into() };
    let mut page = Page::new(source, &text, look, width);
    for (event, range) in Parser::new_ext(&text, Options::empty()).into_offset_iter() {
        page.event(event, range);
    }
    page.end_block();
    (page.lines, page.tags)
}

/// What is left of the lines of a list item or a quote.
struct Margin {
    first: String,
    rest: String,
    is_begun: bool,
}

/// A text being laid out.
struct Page<'a> {
    source: &'a TaggedText,
    text: &'a str,
    look: Look,
    width: u16,
    lines: Vec<Line<'static>>,
    tags: Vec<Vec<Tagged>>,
    /// The current block: a paragraph, a heading, code.
    block: Option<Flow>,
    margins: Vec<Margin>,
    /// Number of the next item of each list, none for bullets.
    lists: Vec<Option<u64>>,
    /// Of the text, innermost last.
    styles: Vec<Style>,
    /// Where in the text the newest content ended.
    end: usize,
    links: Vec<String>,
}

impl<'a> Page<'a> {
    fn new(source: &'a TaggedText, text: &'a str, look: Look, width: u16) -> Self {
        Self {
            source,
            text,
            look,
            width: width.max(1),
            lines: Vec::new(),
            tags: Vec::new(),
            block: None,
            margins: Vec::new(),
            lists: Vec::new(),
            styles: vec![look.text],
            end: 0,
            links: Vec::new(),
        }
    }

    fn event(&mut self, event: Event, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.start(tag, range),
            Event::End(tag) => self.leave(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text, range, self.style()),
            Event::Code(text) => {
                let style = self.style().patch(self.look.code);
                let from = self
                    .text
                    .get(range.clone())
                    .and_then(|s| s.find(&*text))
                    .map_or(range.start, |at| range.start + at);
                self.text(&text, from..from + text.len(), style);
                self.end = range.end;
            }
            Event::SoftBreak | Event::HardBreak => self.block(range.start).end_line(),
            Event::Rule => {
                let dim = self.look.dim;
                let width = usize::from(self.width).min(24);
                self.block(range.start).push(&"─".repeat(width), dim);
                self.end = range.end;
                self.end_block();
            }
            _ => {}
        }
    }

    fn start(&mut self, tag: Tag, range: Range<usize>) {
        let style = self.style();
        match tag {
            Tag::Heading { level, .. } => {
                let first = if level == HeadingLevel::H1 { Modifier::UNDERLINED } else { Modifier::empty() };
                self.styles.push(style.patch(self.look.heading).add_modifier(first));
            }
            Tag::CodeBlock(_) => {
                self.styles.push(self.look.code);
                self.end_block();
                self.enter("│ ".to_owned(), "│ ".to_owned());
            }
            Tag::BlockQuote(_) => self.enter("│ ".to_owned(), "│ ".to_owned()),
            Tag::List(first) => {
                self.end_block();
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Emphasis => self.styles.push(style.add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.styles.push(style.add_modifier(Modifier::BOLD)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                let is_shown = self.text.get(range).is_none_or(|shown| shown.starts_with('<'));
                self.links.push(if is_shown { String::new() } else { dest_url.into_string() });
            }
            _ => {}
        }
    }

    fn leave(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_block(),
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.end_block();
            }
            TagEnd::CodeBlock => {
                self.styles.pop();
                self.end_block();
                self.margins.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.end_block();
                self.margins.pop();
            }
            TagEnd::Item => {
                if self.margins.last().is_some_and(|margin| !margin.is_begun) {
                    self.block(self.end); // an empty item is its bullet
                }
                self.end_block();
                self.margins.pop();
            }
            TagEnd::List(_) => drop(self.lists.pop()),
            TagEnd::Emphasis | TagEnd::Strong => drop(self.styles.pop()),
            TagEnd::Link | TagEnd::Image => {
                let address = self.links.pop().unwrap_or_default();
                if !address.is_empty() {
                    let dim = self.look.dim;
                    self.block(self.end).push(&format!(" ({})", draftscope_session::text::one_line(&address)), dim);
                }
            }
            _ => {}
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or(self.look.text)
    }

    fn enter(&mut self, first: String, rest: String) {
        self.end_block();
        self.margins.push(Margin { first, rest, is_begun: false });
    }

    fn item(&mut self) {
        let bullet = match self.lists.last_mut() {
            Some(Some(number)) => {
                let bullet = format!("{number}. ");
                *number = number.saturating_add(1);
                bullet
            }
            _ => "• ".to_owned(),
        };
        let rest = " ".repeat(bullet.width());
        self.enter(bullet, rest);
    }

    /// Adds text of the source, each part with its owner; text that differs from the source (an entity) belongs to the
    /// part in which it begins.
    fn text(&mut self, text: &str, range: Range<usize>, style: Style) {
        let is_source = self.text.get(range.clone()) == Some(text);
        self.block(range.start);
        let mut at = range.start;
        let mut rest = text;
        while !rest.is_empty() {
            let (owner, end) = self.source.part_at(at);
            let len = if is_source { end.min(range.end).saturating_sub(at).max(1) } else { rest.len() };
            let (part, tail) = rest.split_at_checked(len).unwrap_or((rest, ""));
            let style = match self.look.chosen {
                Some((round, chosen)) if round == owner.0 => style.patch(chosen),
                _ => style,
            };
            let flow = self.block(at);
            flow.tag(owner.0, owner.1.into());
            flow.push(&draftscope_session::text::printable(part), style);
            (at, rest) = (at + part.len(), tail);
        }
        self.end = self.end.max(range.end);
    }

    /// The current block; else a new one that begins at this place of the text.
    fn block(&mut self, at: usize) -> &mut Flow {
        if self.block.is_none()
            && has_blank_line(self.text.get(self.end..at).unwrap_or_default())
            && !self.lines.is_empty()
        {
            self.push_line(Line::default(), Vec::new(), true);
        }
        let width = self.width - self.margin();
        self.block.get_or_insert_with(|| Flow::new(width))
    }

    /// Width of what is left of the text: 0 if little would remain.
    fn margin(&self) -> u16 {
        let width: usize = self.margins.iter().take(DEPTH).map(|margin| margin.rest.width()).sum();
        if width * 2 > usize::from(self.width) { 0 } else { width as u16 }
    }

    fn end_block(&mut self) {
        let Some(flow) = self.block.take() else {
            return;
        };
        let (mut lines, mut tags) = flow.finish_tagged();
        if lines.is_empty() {
            (lines, tags) = (vec![Line::default()], vec![Vec::new()]);
        }
        for (line, tags) in lines.into_iter().zip(tags) {
            self.push_line(line, tags, false);
        }
    }

    /// Adds a line with its margin; a blank one separates blocks and begins none.
    fn push_line(&mut self, line: Line<'static>, tags: Vec<Tagged>, is_blank: bool) {
        let by = self.margin();
        let mut left = String::new();
        for (depth, margin) in self.margins.iter_mut().enumerate() {
            let part = if margin.is_begun { &margin.rest } else { &margin.first };
            if depth < DEPTH && (margin.is_begun || !is_blank) {
                left.push_str(part);
            }
            margin.is_begun |= !is_blank;
        }
        let mut spans = Vec::new();
        if by > 0 {
            spans.push(Span::styled(left, self.look.dim));
        }
        spans.extend(line.spans);
        self.lines.push(Line::from(spans));
        self.tags.push(tags.into_iter().map(|tag| Tagged { x: tag.x + by, ..tag }).collect());
    }
}

/// Whether the source between two blocks contains an empty line.
fn has_blank_line(between: &str) -> bool {
    let mut lines = between.split('\n');
    let (_, _) = (lines.next(), lines.next_back());
    lines.any(|line| line.trim_matches([' ', '>']).is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn look() -> Look {
        let style = Style::new();
        Look { text: style, heading: style.bold(), code: style.italic(), dim: style.dim(), chosen: None }
    }

    fn source(text: &str) -> TaggedText {
        let mut source = TaggedText::default();
        for (i, part) in text.split_inclusive(' ').enumerate() {
            source.push(part, (1, i as u16));
        }
        source
    }

    fn shown(text: &str, is_open: bool, width: u16) -> Vec<String> {
        lines(&source(text), is_open, look(), width)
            .0
            .iter()
            .map(|line| line.to_string().trim_end().to_owned())
            .collect()
    }

    const TEXT: &str = "# Title of it\n\nHere are **three bold** things and `some code`:\n- one *item* here\n  goes on\n- \
                        two\n\n1. first of all\n2. then **that**\n   - within\n\n> quoted text\n\n```rust\nfn main() {\n    \
                        body();\n}\n```\n\nIt costs 2*3 and 4 * 5, a_b_c too.\n\n---\nEnd &amp; over\n";

    #[test]
    fn markdown_is_rendered() {
        let expected = [
            "Title of it",
            "",
            "Here are three bold things and some code:",
            "• one item here",
            "  goes on",
            "• two",
            "",
            "1. first of all",
            "2. then that",
            "   • within",
            "",
            "│ quoted text",
            "",
            "│ fn main() {",
            "│     body();",
            "│ }",
            "",
            "It costs 2*3 and 4 * 5, a_b_c too.",
            "",
            "────────────────────────",
            "End & over",
        ];
        assert_eq!(shown(TEXT, false, 80), expected);
    }

    #[test]
    fn styles_are_those_of_the_parts() {
        let (lines, _) = lines(&source("a **b** `c`\n# d"), false, look(), 20);
        let style = |line: usize, text: &str| lines[line].spans.iter().find(|s| s.content == text).unwrap().style;
        assert_eq!(style(0, "b"), Style::new().bold());
        assert_eq!(style(0, "c"), Style::new().italic());
        assert_eq!(style(1, "d"), Style::new().bold().underlined());
    }

    #[test]
    fn links_say_where_they_lead_and_html_stays_as_it_is() {
        assert_eq!(shown("[a](https://b.c) <https://d.e>", false, 60), ["a (https://b.c) https://d.e"]);
        assert_eq!(shown("<b>x</b>\n\n<p>\ny\n</p>\n", false, 60), ["<b>x</b>", "", "<p>", "y", "</p>"]);
        assert_eq!(shown("| a | b |\n|---|---|\n| 1 | 2 |", false, 60), ["| a | b |", "|---|---|", "| 1 | 2 |"]);
    }

    #[test]
    fn every_word_is_where_the_mouse_finds_it() {
        let text = "- one **two** three";
        let (_, tags) = lines(&source(text), false, look(), 40);
        // "- " is the first part and not shown; the bullet has no owner
        let found: Vec<_> = tags[0].iter().map(|tag| (tag.x, tag.width, tag.column)).collect();
        assert_eq!(found, [(2, 4, 1), (6, 4, 2), (10, 5, 3)]);
    }

    #[test]
    fn an_open_text_does_not_flicker() {
        for width in [80, 24] {
            let whole = lines(&source(TEXT), false, look(), width).0;
            for end in (0..TEXT.len()).filter(|end| TEXT.is_char_boundary(*end)) {
                let drawn = lines(&source(&TEXT[..end]), true, look(), width).0;
                let settled = drawn.len().saturating_sub(1);
                assert_eq!(drawn[..settled], whole[..settled], "after {:?}", &TEXT[..end]);
                let (last, stays) = (drawn.last().map_or(String::new(), ToString::to_string), whole.get(settled));
                let stays = stays.map_or(String::new(), ToString::to_string);
                let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                let (last, stays) = (words(&last), words(&stays));
                let same = last.iter().zip(&stays).take_while(|(a, b)| a == b).count();
                assert!(same + 1 >= last.len(), "{last:?} becomes {stays:?} after {:?}", &TEXT[..end]);
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_drawn(
            text in "([-#*_`>~ \n\t\\[\\]()!<&;|\\\\=0-9a-z夕🦀\u{1b}\u{9b}]|\\*\\*|```|&#27;){0,60}",
            width in 1u16..30,
            is_open: bool,
        ) {
            let (lines, tags) = lines(&source(&text), is_open, look(), width);
            prop_assert_eq!(lines.len(), tags.len());
            for line in &lines {
                prop_assert!(line.width() <= usize::from(width), "{:?}", line);
                prop_assert!(line.to_string().chars().all(|c| !c.is_control()), "{:?}", line);
            }
        }
    }

    #[test]
    fn deep_nesting_is_drawn() {
        for text in [">".repeat(5000), "- ".repeat(3000) + "x", "*".repeat(9000), "[".repeat(9000), "`".repeat(9000)] {
            for is_open in [false, true] {
                assert!(lines(&source(&text), is_open, look(), 30).0.len() < 10_000);
            }
        }
    }
}
