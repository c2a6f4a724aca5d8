//! Drafters and rules in detail: how drafters draft, and the limits of rules that are not lossless.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};

use draftscope_protocol::DrafterKind;

/// Drafters and rules in detail; [`super::help`] shows these options only with `--help-all`.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Drafting")]
pub struct LabArgs {
    /// Draft a tree of at most N nodes, -k deep, instead of a chain (MTP module only)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=15), allow_negative_numbers = true)]
    pub tree: Option<u8>,
    /// How a drafter picks tokens at a temperature above 0
    #[arg(long, value_name = "HOW", default_value = "sample", value_parser = picks())]
    pub draft_pick: String,
    /// End a draft when the drafter's largest probability falls below P
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true)]
    pub p_min: f32,
    /// Shortest n-gram that is looked up
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64), allow_negative_numbers = true)]
    pub ngram_min: u8,
    /// Longest n-gram that is looked up [default: 5, or the shortest if that is longer]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64), allow_negative_numbers = true)]
    pub ngram_max: Option<u8>,
    /// Layers of the target that early-exit drafts with; 0 takes a third of them
    #[arg(long, value_name = "L", default_value_t = 0, allow_negative_numbers = true)]
    pub exit_layers: u16,
    /// Chance that a draft of the drafter dial is the token of the plain answer
    #[arg(long, value_name = "A", default_value_t = 0.8, allow_negative_numbers = true)]
    pub dial: f32,
    /// Run the MTP module by other conventions than its own, such as feed=pre-norm,order=hidden-first; the text stays
    /// the same, a wrong convention only lowers acceptance. Keys: feed, recycle, order, pairing, position, slot0, norm
    #[arg(long, value_name = "KEY=VALUE,…", default_value = "", hide_default_value = true)]
    pub mtp_spec: String,
    /// Rule typical accepts a draft if p > min(epsilon, delta · e^(-entropy of p)): epsilon
    #[arg(long, value_name = "P", default_value_t = 0.3, allow_negative_numbers = true)]
    pub epsilon: f32,
    /// Rule typical accepts a draft if p > min(epsilon, delta · e^(-entropy of p)): delta
    #[arg(long, value_name = "X", default_value_t = 0.3, allow_negative_numbers = true)]
    pub delta: f32,
    /// Rule top-k accepts a draft that is among the target's K most probable tokens
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=10), allow_negative_numbers = true)]
    pub lenient_top_k: u8,
    /// Rule threshold accepts a draft if p is at least P
    #[arg(long, value_name = "P", default_value_t = 0.1, allow_negative_numbers = true)]
    pub threshold: f32,
    /// Rule confidence accepts a draft if q is at least Q, without asking the target
    #[arg(long, value_name = "Q", default_value_t = 0.6, allow_negative_numbers = true)]
    pub confidence: f32,
}

fn named(values: &[(&'static str, &'static str)]) -> PossibleValuesParser {
    values.iter().map(|(name, help)| PossibleValue::new(*name).help(*help)).collect::<Vec<_>>().into()
}

/// Names of `--drafter`.
pub(super) fn drafters() -> PossibleValuesParser {
    let value = |kind: &DrafterKind| PossibleValue::new(kind.name()).help(kind.describe().into_owned());
    DrafterKind::ALL.iter().map(value).collect::<Vec<_>>().into()
}

/// Names of `--verify`.
pub(super) fn rules() -> PossibleValuesParser {
    named(&[
        ("exact", "lossless: a draft must equal the token that the target picks"),
        ("rejection", "lossless: speculative sampling, min(1, p/q)"),
        ("block", "lossless: as rejection, but the drafts of a chain are judged together (trees: by rejection)"),
        ("typical", "NOT lossless: p > min(epsilon, delta e^-entropy)"),
        ("top-k", "NOT lossless: among the target's best tokens"),
        ("threshold", "NOT lossless: p at least --threshold"),
        ("confidence", "NOT lossless: q at least --confidence; the target is not asked"),
    ])
}

/// Names of `--draft-pick`.
fn picks() -> PossibleValuesParser {
    named(&[("sample", "drawn from q"), ("argmax", "the most probable token, which rules count as q = 1")])
}
