//! The help overlay: the keys of the page on show, every key by what one wants to do, every mark, every number defined.
//!
//! Invariant: keys and their descriptions come from the table, so the help cannot be wrong about them. The glossary
//! uses the words of the crate.

use ratatui::layout::Margin;

use crate::app::overlay::help_page::HelpPage;
use crate::input::action::Aim;
use crate::input::editor;
use crate::input::keymap::Binding;
use crate::input::line_input::LineInput;
use crate::view::bars::footer;
use crate::view::prelude::*;

/// Width of the key column.
const KEYS: usize = 20;

/// Marks keys that do something in the prompt only.
const TYPING: &str = " (while typing)";

/// Words and numbers on screen.
const GLOSSARY: &[(&str, &str)] = &[
    ("target", "the model that decides; drafter: the small one that proposes"),
    ("round", "k draft tokens, one target pass over all of them, a verdict, a commit"),
    ("k", "draft tokens asked for per round"),
    ("q, p", "drafter's and target's probability of a token"),
    ("bonus", "all drafts accepted: the same pass gives one more token"),
    ("recovered", "the target's token in place of a rejected draft"),
    ("tokens/s", "tokens committed in rounds ÷ the lane's clock (prefill and first token not counted)"),
    ("curve", "the same over the last 16 tokens"),
    ("lane's clock", "measured time of its rounds; lanes take turns on one device, each on its own clock"),
    ("speedup", "speculative ÷ plain tokens/s at the same moments of this turn, ± its 95 % interval"),
    ("disturbed", "a figure that cannot be: other work slowed some passes and not those beside them"),
    ("session", "the same numbers over all turns (speedup: their mean by the time of their rounds)"),
    ("tokens/round", "committed ÷ rounds, bonus and recovered included"),
    ("accepted", "accepted ÷ drafted; of tested: only drafts that were compared"),
    ("by position", "accepted ÷ offered at that place of the draft"),
    ("n/m tokens", "of the target's m tokens the drafter can propose n"),
    ("+ text", "and those that stand in the text, while there is room"),
    ("break-even", "the share of drafts after accepted ones to accept for a k to be as fast as plain decoding"),
    ("T(m)", "time of one target pass over m rows, ± its 95 % interval; (16) after it: so many passes"),
    ("context 170", "position in the context, the prompt's tokens included"),
    ("residual", "max(0, p − q), once normalised: what a rejected draft is redrawn from"),
    ("the past", "an earlier moment, rebuilt from the recorded events; the present waits or goes on"),
    ("rival", "the same target with other settings, raced beside on caches and a clock of its own"),
    ("branch", "an answer that goes on from a committed point of another one"),
    ("near tie", "the target's two best candidates differ by less than 0.05"),
    ("lossless", "the output follows the target's own distribution, whatever the drafter says"),
    ("· ⏎ ⇥ ␛", "a space, line break, tab, control character in a token"),
    ("<F0 9F>", "bytes of a token that are only a part of a character"),
];

/// Words and numbers of the view of watched servers.
const WATCHED: &[(&str, &str)] = &[
    ("running, waiting", "requests that the server works on now, and those that wait for it"),
    ("tokens/s", "tokens of all requests together, over the last 10 seconds, those of unfinished answers included"),
    ("accepted", "accepted ÷ drafted over the last 10 seconds, all users together"),
    ("tokens/step", "tokens ÷ steps, those without drafts included where the server counts tokens"),
    ("drafting", "steps that drafted ÷ all steps, where the server counts tokens"),
    (
        "by position",
        "steps in which the draft at this place was accepted ÷ steps that drafted so far; two numbers are its limits",
    ),
    ("first token", "from the request to its first token: mean, and what 95 % of the requests keep"),
    ("between tokens", "time between two tokens of an answer; whole request: until its end"),
    ("KV cache, prefix", "share of the cache in use; share of the prompts' tokens that were found in it"),
    ("requests", "llama-server's slots: the request in each, its tokens, and tokens per second"),
    ("all N, N that answer", "the servers that answer, together: counts added up, shares of the sums"),
    ("–", "the server does not publish it, or nothing was counted in this time"),
];

/// Draws the overlay; returns the largest line that can be on top.
pub(in crate::view) fn render(
    screen: Screen,
    (of, help): (Context, &HelpPage),
    area: Rect,
    frame: &mut Frame,
) -> usize {
    let area = area.inner(Margin::new(area.width / 16, 1));
    let key = |action| screen.app.keymap.label(Context::Help, action);
    let (search, end, leave) = (key(Action::Search), key(Action::Follow), key(Action::Leave));
    let (title, keys) = match &help.search {
        Some(entry) => (format!(" Help: {}▏", entry.text()), format!(" {leave}: all of the help ")),
        None => (" Help ".to_owned(), format!(" {search} searches · {end}: marks and words · {leave} closes ")),
    };
    let block = screen.panel(title).bottom(Line::styled(keys, screen.theme[Role::TextDim]));
    let inner = screen.over(block, area, frame);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    let searched = help.search.as_ref().map_or("", LineInput::text);
    let lines = lines(screen, (of, searched), inner.width);
    let max = lines.len().saturating_sub(inner.height.into());
    put_from(lines, help.top.min(max), inner, frame);
    max
}

fn put_from(lines: Vec<Line<'static>>, top: usize, area: Rect, frame: &mut Frame) {
    put(lines.into_iter().skip(top).take(area.height.into()).collect(), area, frame);
}

/// A headline and what stands below it: keys or a word, what it means, and how that looks.
struct Section {
    title: String,
    entries: Vec<(String, String, Role)>,
}

/// All of the help, or of every section what has the searched text.
fn lines(screen: Screen, (of, searched): (Context, &str), width: u16) -> Vec<Line<'static>> {
    let searched = searched.trim().to_lowercase();
    let mut lines = Vec::new();
    for section in sections(screen, of) {
        let has_title = section.title.to_lowercase().contains(&searched);
        let is_found = |(left, right, _): &&(String, String, Role)| {
            has_title || [left, right].iter().any(|text| text.to_lowercase().contains(&searched))
        };
        let mut found = section.entries.iter().filter(is_found).peekable();
        if found.peek().is_none() {
            continue;
        }
        lines.push(Line::styled(section.title.clone(), screen.theme[Role::TextStrong]));
        found.for_each(|(left, right, role)| entry(screen, (left, right, *role), width, &mut lines));
        lines.push(Line::default());
    }
    if lines.is_empty() {
        lines.push(Line::styled("nothing in the help has these words", screen.theme[Role::TextDim]));
    }
    lines
}

/// First what the page on show is for, then everything by what one wants to do.
fn sections(screen: Screen, of: Context) -> Vec<Section> {
    let describe = |action: Action| {
        let is_elsewhere = |context: Context| screen.app.keymap.of(context).any(|binding| binding.run == action);
        let where_ = if [Context::Browse, Context::Global].map(is_elsewhere) == [false; 2] { TYPING } else { "" };
        (keys(screen, action), format!("{}{where_}", action.describe()), Role::Text)
    };
    let of_context = |context: Context| {
        let bindings = screen.app.keymap.of(context);
        let entry = |b: &Binding| (screen.app.keymap.keys(b), b.run.describe().to_owned(), Role::Text);
        Section { title: context.title().to_owned(), entries: bindings.map(entry).collect() }
    };
    let mut sections = vec![match of {
        Context::Diff => of_context(of),
        Context::Watch => {
            // what its actions are called elsewhere speaks of lines and rounds
            let bindings = screen.app.keymap.of(of);
            let entries = bindings.map(|b| (screen.app.keymap.keys(b), b.desc.clone(), Role::Text)).collect();
            let keys = Section { title: of.title().to_owned(), entries };
            return vec![keys, words("Columns and figures", WATCHED)];
        }
        _ => {
            let here = footer::of_page(screen).filter(|action| !keys(screen, *action).is_empty());
            let title = format!("Here, on the page {}", screen.app.place.page.name());
            Section { title, entries: here.map(describe).collect() }
        }
    }];
    for aim in Aim::ALL {
        let of_aim = Action::ALL.iter().copied().filter(|action| action.aim() == aim);
        let mut entries: Vec<_> = of_aim.filter(|action| !keys(screen, *action).is_empty()).map(describe).collect();
        if aim == Aim::Ask {
            let own = editor::KEYS
                .iter()
                .map(|(keys, meaning)| ((*keys).to_owned(), format!("{meaning}{TYPING}"), Role::Text));
            entries.extend(own);
        }
        sections.push(Section { title: aim.title().to_owned(), entries });
    }
    let boxes = [Context::Panel, Context::Entry, Context::Diff, Context::Help, Context::Quit];
    sections.extend(boxes.into_iter().filter(|context| *context != of).map(of_context));
    sections.push(Section { title: "Marks of tokens".to_owned(), entries: marks() });
    sections.push(words("Words and numbers", GLOSSARY));
    sections
}

fn words(title: &str, of: &[(&str, &str)]) -> Section {
    let entries = of.iter().map(|(word, meaning)| ((*word).to_owned(), (*meaning).to_owned(), Role::Text));
    Section { title: title.to_owned(), entries: entries.collect() }
}

/// The keys of an action on a page, in a prompt and everywhere, each once.
fn keys(screen: Screen, action: Action) -> String {
    let mut keys: Vec<String> = Vec::new();
    for context in [Context::Browse, Context::Global, Context::Prompt] {
        for binding in screen.app.keymap.of(context).filter(|binding| binding.run == action) {
            let new: Vec<_> = screen.app.keymap.keys(binding).split(' ').map(str::to_owned).collect();
            keys.extend(new.into_iter().filter(|key| !keys.contains(key)).collect::<Vec<_>>());
        }
    }
    keys.join(" ")
}

/// Every mark of a token, in the colour of its fate.
fn marks() -> Vec<(String, String, Role)> {
    let more = [
        (Fate::Rejected, "rejected: the first draft that the target does not write"),
        (Fate::NotReached, "not reached: after a rejected one, never judged"),
        (Fate::Pending, "drafted, not judged yet"),
        (Fate::Refused, "refused: the drafter preferred it, the grammar forbids it"),
        (
            Fate::Committed(Provenance::Plain),
            "in tables: the first token, one of a round without drafts, or one that a branch took over",
        ),
    ];
    let kept = fate::LEGEND.iter().filter(|(fate, _)| matches!(fate, Fate::Committed(_)));
    let named = kept.map(|(fate, [name, ..])| (*fate, *name));
    let mark = |(of, name): (Fate, &str)| (fate::sign(of).to_owned(), name.to_owned(), fate::role(of));
    let mut marks: Vec<_> = named.chain(more).map(mark).collect();
    marks.push((fate::DEPARTED.to_owned(), format!("accepted, {}", fate::DEPARTED_NAME), Role::TokenDeparted));
    let [undraftable, _] = fate::UNDRAFTABLE_NAMES;
    marks.push((fate::UNDRAFTABLE.to_owned(), format!("the target's token, {undraftable}"), Role::TokenRecovered));
    let end = "a control token, such as the one that ends an answer".to_owned();
    marks.push((fate::END.to_owned(), end, Role::Text));
    marks.push((fate::discarded_sign(2), "two discarded drafts were here".to_owned(), Role::TokenCounted));
    let forced = "accepted and forced: the grammar allowed no other token".to_owned();
    marks.push((fate::FORCED.to_owned(), forced, Role::TokenForced));
    marks
}

/// Keys or a word, and what it means, on as many lines as that takes.
fn entry(screen: Screen, (left, right, role): (&str, &str, Role), width: u16, lines: &mut Vec<Line<'static>>) {
    let meaning = wrapped(right, width.saturating_sub(KEYS as u16).max(1), screen.theme[role]);
    for (index, line) in meaning.into_iter().enumerate() {
        let label = fit(if index == 0 { left } else { "" }, KEYS);
        let mut spans = vec![Span::styled(label, screen.theme[Role::Key])];
        spans.extend(line.spans);
        lines.push(Line::from(spans));
    }
}
