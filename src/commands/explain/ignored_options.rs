//! Options that have no effect on `explain`.

use draftscope::cli::{DraftLenArg, ExplainArgs};
use draftscope::protocol::VerifyRule;

/// A warning for each given option that has no effect.
pub(super) fn ignored(args: &ExplainArgs) -> Vec<String> {
    let (decode, lab, is_race) = (&args.decode, &args.decode.lab, args.race.is_some());
    let asked = [
        ("-k", decode.k != DraftLenArg::DEFAULT && (is_race || lab.tree.is_none()), "every draft length is tried"),
        ("--verify", decode.verify != VerifyRule::default().name(), "drafts are judged by exact"),
        ("--p-min", lab.p_min > 0.0, "explain tries several values, and a race uses none"),
        ("--tree", lab.tree.is_some() && is_race, "a race uses chains"),
    ];
    let idle = asked.into_iter().filter(|(_, is_given, _)| *is_given);
    idle.map(|(name, _, why)| format!("{name} does nothing here: {why}")).collect()
}
