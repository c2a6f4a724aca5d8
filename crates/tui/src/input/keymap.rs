//! Keys to actions, read from `assets/keymap.toml`.
//!
//! Invariant: keys are named only in this table; the help overlay and the hints in the bottom line are generated from
//! it, so they cannot drift. An invalid line is a warning and the rest applies. The editor handles unbound keys in the
//! prompt.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde::Deserialize;

use crate::input::action::Action;
use crate::look::theme::nearest;
use draftscope_protocol::named_enum;

/// The keymap in the binary.
pub(crate) const BUNDLED: &str = include_str!("../../assets/keymap.toml");

named_enum! {
    /// Where a key is pressed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Context {
        /// While typing.
        Prompt = "prompt",
        /// While looking around.
        Browse = "browse",
        /// Everywhere, unless a narrower context binds the key.
        Global = "global",
        /// In a panel of choices: the settings, what if.
        Panel = "panel",
        /// While typing a name or a search.
        Entry = "entry",
        /// In the quiz; what it does not bind is as while looking around.
        Quiz = "quiz",
        /// In the view of two recordings.
        Diff = "diff",
        /// While servers are watched.
        Watch = "watch",
        /// While the help is open.
        Help = "help",
        /// While the program asks whether to leave an unsaved session.
        Quit = "quit",
    }
}

impl Context {
    /// The context whose keys hold too, besides those that hold everywhere.
    const fn outer(self) -> Option<Self> {
        match self {
            Self::Quiz => Some(Self::Browse),
            _ => None,
        }
    }

    /// Its headline in the help.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Global => "Everywhere",
            Self::Prompt => "In the prompt",
            Self::Browse => "In the views",
            Self::Panel => "In the settings, in what if",
            Self::Entry => "In a search, a note, the list of actions",
            Self::Quiz => "In the quiz",
            Self::Diff => "In a diff of two recordings",
            Self::Watch => "While servers are watched",
            Self::Help => "In this help",
            Self::Quit => "When the session is not saved",
        }
    }
}

/// One key with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chord {
    code: KeyCode,
    modifiers: KeyModifiers,
}

impl Chord {
    /// A pressed key. Shift counts only if the character does not show it.
    #[must_use]
    pub fn of(key: KeyEvent) -> Self {
        let kept = KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT;
        let mut modifiers = key.modifiers & kept;
        let code = match key.code {
            KeyCode::BackTab => {
                modifiers |= KeyModifiers::SHIFT;
                KeyCode::Tab
            }
            KeyCode::Char(c) => {
                modifiers -= KeyModifiers::SHIFT;
                KeyCode::Char(c)
            }
            code => code,
        };
        Self { code, modifiers }
    }

    /// Parses the notation of `keymap.toml`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut chars = text.chars();
        if let (Some(c), None) = (chars.next(), chars.next()) {
            return Some(Self { code: KeyCode::Char(c), modifiers: KeyModifiers::NONE });
        }
        // as terminals report them: the character shows Shift, and Ctrl makes it lower case
        let reported = |c: char, modifiers: &mut KeyModifiers| {
            let is_shifted = modifiers.contains(KeyModifiers::SHIFT);
            *modifiers -= KeyModifiers::SHIFT;
            match (modifiers.contains(KeyModifiers::CONTROL), is_shifted) {
                (true, false) => Some(c.to_ascii_lowercase()),
                (true, true) => None, // terminals send the same as for Ctrl alone
                (false, true) if c.is_alphabetic() => c.to_uppercase().next(),
                (false, true) => None, // which character that is depends on the keyboard
                (false, false) => Some(c),
            }
        };
        let mut rest = text.strip_prefix('<')?.strip_suffix('>')?;
        let mut modifiers = KeyModifiers::NONE;
        while let Some((prefix, tail)) = rest.split_once('-').filter(|(_, tail)| !tail.is_empty()) {
            modifiers |= match prefix {
                "C" => KeyModifiers::CONTROL,
                "A" => KeyModifiers::ALT,
                "S" => KeyModifiers::SHIFT,
                _ => return None,
            };
            rest = tail;
        }
        let mut chars = rest.chars();
        let code = match (chars.next(), chars.next()) {
            (Some(c), None) => KeyCode::Char(reported(c, &mut modifiers)?),
            _ => NAMED.iter().find(|(name, ..)| *name == rest)?.1,
        };
        Some(Self { code, modifiers })
    }

    /// The key as a terminal reports it.
    #[cfg(test)]
    pub(crate) fn event(&self) -> KeyEvent {
        KeyEvent::new(self.code, self.modifiers)
    }

    /// As hints and help show it.
    #[must_use]
    pub fn label(&self) -> String {
        let mut label = String::new();
        for (modifier, name) in
            [(KeyModifiers::CONTROL, "Ctrl+"), (KeyModifiers::ALT, "Alt+"), (KeyModifiers::SHIFT, "Shift+")]
        {
            if self.modifiers.contains(modifier) {
                label.push_str(name);
            }
        }
        let named = NAMED.iter().find(|(_, known, _)| *known == self.code);
        match (named, self.code) {
            (Some((.., name)), _) => label.push_str(name),
            (None, KeyCode::Char(c)) if self.modifiers.is_empty() => label.push(c),
            (None, KeyCode::Char(c)) => label.extend(c.to_uppercase()),
            (None, _) => label.push('?'),
        }
        label
    }
}

/// Keys with names: in the file, in crossterm, on screen.
const NAMED: &[(&str, KeyCode, &str)] = &[
    ("Space", KeyCode::Char(' '), "Space"),
    ("Enter", KeyCode::Enter, "Enter"),
    ("Esc", KeyCode::Esc, "Esc"),
    ("Tab", KeyCode::Tab, "Tab"),
    ("Backspace", KeyCode::Backspace, "Backspace"),
    ("Delete", KeyCode::Delete, "Delete"),
    ("Up", KeyCode::Up, "↑"),
    ("Down", KeyCode::Down, "↓"),
    ("Left", KeyCode::Left, "←"),
    ("Right", KeyCode::Right, "→"),
    ("Home", KeyCode::Home, "Home"),
    ("End", KeyCode::End, "End"),
    ("PageUp", KeyCode::PageUp, "PgUp"),
    ("PageDown", KeyCode::PageDown, "PgDn"),
    ("F1", KeyCode::F(1), "F1"),
    ("F2", KeyCode::F(2), "F2"),
    ("F3", KeyCode::F(3), "F3"),
    ("F4", KeyCode::F(4), "F4"),
    ("F5", KeyCode::F(5), "F5"),
    ("F6", KeyCode::F(6), "F6"),
    ("F7", KeyCode::F(7), "F7"),
    ("F8", KeyCode::F(8), "F8"),
    ("F9", KeyCode::F(9), "F9"),
    ("F10", KeyCode::F(10), "F10"),
    ("F11", KeyCode::F(11), "F11"),
    ("F12", KeyCode::F(12), "F12"),
];

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Its context.
    pub context: Context,
    /// Keys with the same effect.
    pub on: Vec<Chord>,
    /// Their effect.
    pub run: Action,
    /// Two or three words for the hints in the bottom line.
    pub desc: String,
}

/// The whole table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keymap {
    bindings: Vec<Binding>,
    /// Labels name keys in ASCII only.
    pub(crate) is_ascii: bool,
}

#[derive(Deserialize)]
struct RawBinding {
    on: OneOrMany,
    run: Action,
    desc: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Keymap {
    /// The table in the binary.
    #[must_use]
    pub fn bundled() -> Self {
        Self::parse(BUNDLED).0
    }

    /// The bundled table with a user's file on top, with warnings about the file: a key means what the user's file
    /// says, and an action that loses its last key is named.
    #[must_use]
    pub fn with_user(text: Option<&str>) -> (Self, Vec<String>) {
        let Some(text) = text else {
            return (Self::bundled(), Vec::new());
        };
        let (mut keymap, warnings) = Self::parse(text);
        let mut warnings: Vec<_> = warnings.into_iter().map(|warning| format!("keymap: {warning}")).collect();
        let bundled = Self::bundled();
        let own = keymap.clone();
        for mut binding in bundled.bindings {
            // a user's [global] key applies in all contexts
            let taken = |context, chord| own.bound(context, chord).is_some();
            binding.on.retain(|chord| !taken(binding.context, *chord) && !taken(Context::Global, *chord));
            if !binding.on.is_empty() {
                keymap.bindings.push(binding);
            }
        }
        for action in Action::ALL.iter().filter(|action| keymap.bindings.iter().all(|b| b.run != **action)) {
            warnings.push(format!("keymap: no key is left for {}; : still finds it", action.name()));
        }
        (keymap, warnings)
    }

    /// A table from the text of a file, with warnings about invalid lines.
    #[must_use]
    pub fn parse(text: &str) -> (Self, Vec<String>) {
        let mut keymap = Self::default();
        let mut warnings = Vec::new();
        let table = text.parse::<toml::Table>().unwrap_or_else(|error| {
            warnings.push(format!("not TOML: {}", error.message()));
            toml::Table::new()
        });
        for (key, value) in table {
            let Some(context) = Context::ALL.iter().copied().find(|c| c.name() == key) else {
                let near = nearest(&key, Context::NAMES.iter().copied());
                warnings.push(format!("unknown table '{key}'; nearest is '{near}'"));
                continue;
            };
            let Some(list) = value.get("keymap").and_then(toml::Value::as_array) else {
                warnings.push(format!("[{key}] holds no list called keymap"));
                continue;
            };
            for other in value.as_table().into_iter().flatten().map(|(name, _)| name).filter(|name| *name != "keymap") {
                warnings.push(format!("[{key}] unknown entry '{other}'; only keymap is read"));
            }
            for line in list {
                if let Err(warning) = keymap.add(context, line) {
                    warnings.push(format!("[{key}] {warning}"));
                }
            }
        }
        (keymap, warnings)
    }

    fn add(&mut self, context: Context, line: &toml::Value) -> Result<(), String> {
        let raw: RawBinding = line.clone().try_into().map_err(|_| unreadable(line))?;
        let names = match raw.on {
            OneOrMany::One(name) => vec![name],
            OneOrMany::Many(names) => names,
        };
        let chord = |name: &String| Chord::parse(name).ok_or_else(|| format!("unknown key '{name}'"));
        let on = names.iter().map(chord).collect::<Result<Vec<_>, _>>()?;
        if let Some(taken) = on.iter().find(|chord| self.bound(context, **chord).is_some()) {
            return Err(format!("key {} is bound twice", taken.label()));
        }
        self.bindings.push(Binding { context, on, run: raw.run, desc: raw.desc });
        Ok(())
    }

    fn bound(&self, context: Context, chord: Chord) -> Option<Action> {
        let here = |binding: &&Binding| binding.context == context && binding.on.contains(&chord);
        self.bindings.iter().find(here).map(|binding| binding.run)
    }

    /// What a key does in a context.
    #[must_use]
    pub fn action(&self, context: Context, key: KeyEvent) -> Option<Action> {
        let chord = Chord::of(key);
        let outer = || context.outer().and_then(|outer| self.bound(outer, chord));
        self.bound(context, chord).or_else(outer).or_else(|| self.bound(Context::Global, chord))
    }

    /// The binding of an action as seen from a context.
    #[must_use]
    pub fn binding(&self, context: Context, action: Action) -> Option<&Binding> {
        let of = |c: Context| self.bindings.iter().find(move |b| b.run == action && b.context == c);
        of(context).or_else(|| context.outer().and_then(of)).or_else(|| of(Context::Global))
    }

    /// The first key of an action as seen from a context; without one, its name in the list of actions.
    #[must_use]
    pub fn label(&self, context: Context, action: Action) -> String {
        let key = self.binding(context, action).and_then(|binding| binding.on.first());
        key.map_or_else(|| format!("'{}'", action.name().replace('_', " ")), |chord| self.shown(chord))
    }

    /// The first key of a binding; empty if it has none.
    #[must_use]
    pub fn first_key(&self, binding: &Binding) -> String {
        binding.on.first().map_or(String::new(), |chord| self.shown(chord))
    }

    /// All keys of a binding as one string.
    #[must_use]
    pub fn keys(&self, binding: &Binding) -> String {
        binding.on.iter().map(|chord| self.shown(chord)).collect::<Vec<_>>().join(" ")
    }

    fn shown(&self, chord: &Chord) -> String {
        let label = chord.label();
        if self.is_ascii { spelled(&label) } else { label }
    }

    /// The table as Markdown, for the book.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        for context in Context::ALL {
            text.push_str(&format!("| {} | |\n|---|---|\n", context.title()));
            for binding in self.of(*context) {
                let keys: Vec<_> = binding.on.iter().map(|chord| format!("`{}`", chord.label())).collect();
                text.push_str(&format!("| {} | {} |\n", keys.join(" "), binding.run.describe()));
            }
            text.push('\n');
        }
        text
    }

    /// All bindings of one context, in the order of the file.
    pub fn of(&self, context: Context) -> impl Iterator<Item = &Binding> {
        self.bindings.iter().filter(move |binding| binding.context == context)
    }
}

/// A label without arrows: their ASCII replacements are keys of their own.
fn spelled(label: &str) -> String {
    let arrows = [KeyCode::Up, KeyCode::Down, KeyCode::Left, KeyCode::Right];
    let named = NAMED.iter().filter(|(_, code, _)| arrows.contains(code));
    named.fold(label.to_owned(), |label, (name, _, sign)| label.replace(sign, name))
}

/// What is wrong with a line of the wrong shape.
fn unreadable(line: &toml::Value) -> String {
    match line.get("run").and_then(toml::Value::as_str) {
        Some(run) if Action::ALL.iter().all(|action| action.name() != run) => {
            let names: Vec<String> = Action::ALL.iter().map(|action| action.name()).collect();
            let near = nearest(run, names.iter().map(String::as_str));
            format!("unknown action '{run}'; nearest is '{near}'")
        }
        _ => format!("expected {{ on, run, desc }}, got {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_keymap_loads_with_zero_warnings_and_binds_every_action() {
        let (keymap, warnings) = Keymap::parse(BUNDLED);
        assert_eq!(warnings, Vec::<String>::new());
        for action in Action::ALL {
            assert!(keymap.bindings.iter().any(|b| b.run == *action), "{action:?} is not bound");
            assert!(!action.describe().is_empty());
        }
        assert!(keymap.bindings.iter().all(|b| !b.desc.is_empty()));
    }

    #[test]
    fn names_of_actions_are_those_serde_reads() {
        for action in Action::ALL {
            let value = toml::Value::String(action.name());
            assert_eq!(value.try_into::<Action>(), Ok(*action));
        }
    }

    #[test]
    fn a_narrower_context_wins() {
        let keymap = Keymap::bundled();
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert_eq!(keymap.action(Context::Prompt, key(KeyCode::Up)), Some(Action::HistoryPrevious));
        assert_eq!(keymap.action(Context::Browse, key(KeyCode::Up)), Some(Action::Up));
        assert_eq!(keymap.action(Context::Prompt, key(KeyCode::Esc)), Some(Action::Leave));
        assert_eq!(keymap.action(Context::Prompt, key(KeyCode::Char('q'))), None);
        let shifted = KeyEvent::new(KeyCode::Char('?'), KeyModifiers::SHIFT);
        assert_eq!(keymap.action(Context::Browse, shifted), Some(Action::Help));
    }

    #[test]
    fn bad_lines_are_warnings_and_the_rest_holds() {
        let text = "[browse]\nkeymap = [{ on = \"x\", run = \"qiut\", desc = \"q\" }, { on = \"<X-a>\", run = \"quit\", desc = \"q\" }, { on = \"z\", run = \"quit\", desc = \"q\" }, { on = \"z\", run = \"help\", desc = \"q\" }]\n[brwse]\n";
        let (keymap, warnings) = Keymap::parse(text);
        assert_eq!(keymap.bindings.len(), 1);
        assert_eq!(
            warnings,
            [
                "[browse] unknown action 'qiut'; nearest is 'quit'",
                "[browse] unknown key '<X-a>'",
                "[browse] key z is bound twice",
                "unknown table 'brwse'; nearest is 'browse'",
            ]
        );
    }

    #[test]
    fn a_users_lines_stand_before_the_bundled_ones() {
        let text = "[browse]\nkeymap = [{ on = \"w\", run = \"quit\", desc = \"quit\" }, { on = \"x\", run = \"zooom\", desc = \"z\" }]";
        let (keymap, warnings) = Keymap::with_user(Some(text));
        let key = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE);
        assert_eq!(keymap.action(Context::Browse, key('w')), Some(Action::Quit));
        assert_eq!(keymap.action(Context::Browse, key('q')), Some(Action::Quit));
        assert_eq!(
            warnings,
            [
                "keymap: [browse] unknown action 'zooom'; nearest is 'zoom'",
                "keymap: no key is left for what_if; : still finds it",
            ]
        );
        assert_eq!(Keymap::with_user(None), (Keymap::bundled(), Vec::new()));
    }

    #[test]
    fn the_markdown_has_a_line_for_every_binding() {
        let keymap = Keymap::bundled();
        let text = keymap.to_markdown();
        assert!(text.contains("| `Alt+Enter` `Ctrl+J` | Start a new line in the prompt |"));
        let lines = text.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(lines, keymap.bindings.len());
    }

    #[test]
    fn chords_have_labels() {
        let label = |text| Chord::parse(text).unwrap().label();
        assert_eq!(label("<C-c>"), "Ctrl+C");
        assert_eq!(label("<A-Enter>"), "Alt+Enter");
        assert_eq!(label("<Space>"), "Space");
        assert_eq!(label("?"), "?");
        assert_eq!(label("<S-Left>"), "Shift+←");
    }
}
