//! Settings that can be changed during a run: one row of the panel each.
//!
//! Invariant: changing a row changes that setting only, stays within the limits that the protocol checks, and yields
//! the command that requests it; an event reports the setting in force.

use draftscope_protocol::{
    Ability, Baseline, Command, Convention, DraftLenMode, DrafterKind, MAX_DRAFT_LEN, Settings, VerifyRule,
};

/// Highest temperature that the keys select.
const MAX_TEMPERATURE: f32 = 2.0;

/// Top-k values that the keys select; 0 keeps all.
const TOP_K: [u32; 8] = [0, 1, 2, 5, 10, 20, 50, 100];

/// Maximum lengths of an answer that the keys select.
const MAX_TOKENS: [u32; 9] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettingRow {
    Drafter,
    DraftLen,
    Mode,
    Tree,
    PMin,
    /// Share of right drafts of the drafter `dial`.
    Dial,
    Rule,
    Temperature,
    TopK,
    TopP,
    MinP,
    Seed,
    MaxTokens,
    Baseline,
    /// For experts: a convention of the MTP module.
    Mtp(Convention),
}

impl SettingRow {
    /// Every setting: the panel has a row for each.
    #[cfg(test)]
    pub(crate) const ALL: &'static [Self] = &[
        Self::Drafter,
        Self::DraftLen,
        Self::Mode,
        Self::Tree,
        Self::PMin,
        Self::Dial,
        Self::Rule,
        Self::Temperature,
        Self::TopK,
        Self::TopP,
        Self::MinP,
        Self::Seed,
        Self::MaxTokens,
        Self::Baseline,
        Self::Mtp(Convention::Feed),
        Self::Mtp(Convention::Recycle),
        Self::Mtp(Convention::Order),
        Self::Mtp(Convention::Pairing),
        Self::Mtp(Convention::Position),
        Self::Mtp(Convention::SlotZero),
        Self::Mtp(Convention::Norm),
    ];

    /// Those that a rival has separately.
    pub(crate) const RIVAL: &'static [Self] = &[Self::DraftLen, Self::Rule, Self::Drafter, Self::Temperature];

    /// The capability of the engine that it needs.
    pub(crate) const fn needs(self) -> Ability {
        match self {
            Self::DraftLen | Self::Mode => Ability::SetDraftLen,
            Self::Drafter | Self::Tree | Self::PMin | Self::Dial | Self::Rule | Self::Mtp(_) => Ability::SetDrafter,
            Self::Temperature | Self::TopK | Self::TopP | Self::MinP | Self::Seed | Self::MaxTokens => {
                Ability::SetSampling
            }
            Self::Baseline => Ability::Compare,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        self.texts().0
    }

    /// A short description.
    pub(crate) const fn hint(self) -> &'static str {
        self.texts().1
    }

    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::Drafter => ("drafter", "who proposes the drafts; human: you type them"),
            Self::DraftLen => ("k, draft length", "draft tokens a round; 0 is plain decoding"),
            Self::Mode => ("k chosen by", "you, or the engine from what passes cost"),
            Self::Tree => ("tree", "drafts of a tree in all; off drafts a chain"),
            Self::PMin => ("p-min", "a draft ends where q is below; 0 never"),
            Self::Dial => ("dial", "expert: share of the dial's drafts that are right"),
            Self::Rule => ("verification rule", "how drafts are judged"),
            Self::Temperature => ("temperature", "0 takes the most probable token"),
            Self::TopK => ("top-k", "keep so many of the most probable; 0 keeps all"),
            Self::TopP => ("top-p", "keep the smallest set with this mass; 1 keeps all"),
            Self::MinP => ("min-p", "keep what has this share of the best; 0 keeps all"),
            Self::Seed => ("seed", "of every draw"),
            Self::MaxTokens => ("max tokens", "longest answer"),
            Self::Baseline => ("plain decoding", "measured beside, a new one from the next turn on"),
            Self::Mtp(Convention::Feed) => ("MTP: fed with", "expert: the target's state that a slot reads"),
            Self::Mtp(Convention::Recycle) => ("MTP: recycles", "expert: the state that deeper drafts read"),
            Self::Mtp(Convention::Order) => ("MTP: concat order", "expert: halves of the projection's input"),
            Self::Mtp(Convention::Pairing) => {
                ("MTP: state's token", "expert: the token of a slot, predicted or its own")
            }
            Self::Mtp(Convention::Position) => ("MTP: position", "expert: where slots stand, each or all of a round"),
            Self::Mtp(Convention::SlotZero) => ("MTP: slot 0", "expert: what the first slot is"),
            Self::Mtp(Convention::Norm) => ("MTP: norm weights", "expert: the factor is w, or 1 + w"),
        }
    }

    pub(crate) fn value(self, settings: &Settings) -> String {
        let sampling = &settings.sampling;
        match self {
            Self::Drafter => settings.drafter.to_string(),
            Self::DraftLen => settings.draft_len.to_string(),
            Self::Mode => if is_auto(settings) { "the engine" } else { "you" }.to_owned(),
            Self::Tree => settings.drafting.tree.map_or_else(|| "off".to_owned(), |nodes| nodes.to_string()),
            Self::PMin => format!("{:.2}", settings.drafting.p_min),
            Self::Dial => format!("{:.2}", settings.drafting.dial),
            Self::Rule => {
                format!("{} ({})", settings.rule, settings.rule.label())
            }
            Self::Temperature => format!("{:.1}", sampling.temperature),
            Self::TopK => sampling.top_k.to_string(),
            Self::TopP => format!("{:.2}", sampling.top_p),
            Self::MinP => format!("{:.2}", sampling.min_p),
            Self::Seed => sampling.seed.to_string(),
            Self::MaxTokens => settings.max_tokens.to_string(),
            Self::Baseline => match settings.baseline {
                Baseline::Off => "off".to_owned(),
                Baseline::Probe(tokens) => format!("timed beside ({tokens} tokens)"),
                Baseline::Race => "runs in full".to_owned(),
            },
            Self::Mtp(convention) => settings.drafting.mtp.get(convention).unwrap_or("as made").to_owned(),
        }
    }

    /// Changes it up or down; `drafters` are the available ones.
    pub(crate) fn turn(self, settings: &mut Settings, up: bool, drafters: &[DrafterKind]) -> Command {
        let auto = is_auto(settings);
        let sampling = &mut settings.sampling;
        match self {
            Self::Drafter => {
                settings.drafter = neighbour(drafters, settings.drafter, up);
                return Command::SetDrafter { drafter: settings.drafter };
            }
            Self::Mode if auto => {
                fix(settings);
                return Command::SetDraftLen { draft_len: settings.draft_len };
            }
            Self::Mode => {
                settings.draft_len_mode = DraftLenMode::Auto;
                return Command::SetAutoDraftLen;
            }
            Self::DraftLen => {
                if auto {
                    fix(settings);
                }
                settings.draft_len =
                    settings.draft_len.saturating_add_signed(if up { 1 } else { -1 }).min(MAX_DRAFT_LEN);
                return Command::SetDraftLen { draft_len: settings.draft_len };
            }
            Self::Tree => {
                settings.drafting.tree = other_tree(settings.drafting.tree, up);
                return Command::SetDrafting { drafting: settings.drafting };
            }
            Self::PMin => {
                settings.drafting.p_min = step(settings.drafting.p_min, 0.05, up, 1.0);
                return Command::SetDrafting { drafting: settings.drafting };
            }
            Self::Dial => {
                settings.drafting.dial = step(settings.drafting.dial, 0.05, up, 1.0);
                return Command::SetDrafting { drafting: settings.drafting };
            }
            Self::Rule => {
                settings.rule = neighbour(VerifyRule::ALL, settings.rule, up);
                return Command::SetRule { rule: settings.rule };
            }
            Self::MaxTokens => {
                settings.max_tokens = next_step(&MAX_TOKENS, settings.max_tokens, up);
                return Command::SetMaxTokens { max_tokens: settings.max_tokens };
            }
            Self::Baseline => {
                settings.baseline = other_baseline(settings.baseline, up);
                return Command::SetBaseline { baseline: settings.baseline };
            }
            Self::Mtp(convention) => {
                let mtp = &mut settings.drafting.mtp;
                let wanted = other_convention(convention, mtp.get(convention), up);
                // names of the list are always valid
                let _ = mtp.set(convention, wanted);
                return Command::SetDrafting { drafting: settings.drafting };
            }
            Self::Temperature => sampling.temperature = step(sampling.temperature, 0.1, up, MAX_TEMPERATURE),
            Self::TopK => sampling.top_k = next_step(&TOP_K, sampling.top_k, up),
            Self::TopP => sampling.top_p = step(sampling.top_p, 0.05, up, 1.0).max(0.05),
            Self::MinP => sampling.min_p = step(sampling.min_p, 0.05, up, 1.0),
            Self::Seed if up => sampling.seed = sampling.seed.saturating_add(1),
            Self::Seed => sampling.seed = sampling.seed.saturating_sub(1),
        }
        Command::SetSampling { sampling: *sampling }
    }
}

/// As made, then the values one after the other, wrapping around.
fn other_convention(convention: Convention, now: Option<&str>, up: bool) -> Option<&'static str> {
    let names: Vec<Option<&'static str>> =
        [None].into_iter().chain(convention.names().iter().copied().map(Some)).collect();
    let at = names.iter().position(|name| *name == now).unwrap_or(0);
    names[(at + if up { 1 } else { names.len() - 1 }) % names.len()]
}

/// A chain, then trees of two nodes and more; one node is a chain.
fn other_tree(tree: Option<u8>, up: bool) -> Option<u8> {
    match (tree, up) {
        (None, true) => Some(2),
        (None | Some(..=2), false) => None,
        (Some(nodes), true) => Some((nodes + 1).min(MAX_DRAFT_LEN)),
        (Some(nodes), false) => Some(nodes - 1),
    }
}

/// From the engine's choice to a fixed k: the automatic k's maximum, too much for every round, is not taken.
fn fix(settings: &mut Settings) {
    settings.draft_len_mode = DraftLenMode::Fixed;
    settings.draft_len = settings.draft_len.min(Settings::default().draft_len);
}

fn is_auto(settings: &Settings) -> bool {
    settings.draft_len_mode == DraftLenMode::Auto
}

fn other_baseline(baseline: Baseline, up: bool) -> Baseline {
    match (baseline, up) {
        (Baseline::Off, true) | (Baseline::Race, false) => Baseline::PROBE,
        (Baseline::Probe(_), true) | (Baseline::Off, false) => Baseline::Race,
        (Baseline::Race, true) | (Baseline::Probe(_), false) => Baseline::Off,
    }
}

/// A step on a grid of its own size, from 0 to `max`.
fn step(value: f32, size: f32, up: bool, max: f32) -> f32 {
    let steps = (value / size).round() + if up { 1.0 } else { -1.0 };
    ((steps * size * 100.0).round() / 100.0).clamp(0.0, max)
}

/// The next larger or smaller of some values; the last one stays.
fn next_step(all: &[u32], value: u32, up: bool) -> u32 {
    let found = if up { all.iter().find(|v| **v > value) } else { all.iter().rev().find(|v| **v < value) };
    found.copied().unwrap_or(value)
}

/// The next or previous one, wrapping around.
pub(crate) fn neighbour<T: Copy + PartialEq>(all: &[T], value: T, up: bool) -> T {
    let at = all.iter().position(|known| *known == value).unwrap_or(0);
    all.get((at + if up { 1 } else { all.len().max(1) - 1 }) % all.len().max(1)).copied().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_stays_within_the_limits_and_changes_nothing_else() {
        for setting in SettingRow::ALL {
            for up in [true, false] {
                let mut settings = Settings::default();
                for _ in 0..60 {
                    setting.turn(&mut settings, up, DrafterKind::ALL);
                    settings.validate().unwrap();
                }
                // setting k by hand takes it back from the engine
                let others = SettingRow::ALL.iter().filter(|other| *other != setting);
                for other in others {
                    assert_eq!(other.value(&settings), other.value(&Settings::default()), "{setting:?} {other:?}");
                }
            }
        }
    }

    #[test]
    fn a_step_up_and_down_is_back() {
        for setting in SettingRow::ALL {
            let mut settings = Settings { draft_len: 3, max_tokens: 512, ..Settings::default() };
            settings.sampling =
                draftscope_protocol::Sampling { temperature: 0.7, top_k: 20, top_p: 0.9, min_p: 0.1, seed: 5 };
            let before = setting.value(&settings);
            setting.turn(&mut settings, true, DrafterKind::ALL);
            assert_ne!(setting.value(&settings), before, "{setting:?}");
            setting.turn(&mut settings, false, DrafterKind::ALL);
            assert_eq!(setting.value(&settings), before, "{setting:?}");
        }
    }
}
