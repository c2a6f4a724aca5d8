//! Trees in `explain`: a probe run with a tree at every position, and its simulation.
//!
//! Invariant: only the recorded tree is simulated, so its counts are those of a real run.

use anyhow::{Result, bail};
use draftscope::cli::ExplainArgs;
use draftscope::protocol::{Costs, DrafterKind, Drafting, Lane, Settings};
use draftscope::session::Turn;

use super::points::{LONGEST, all, point, recordings};
use super::report::{Report, Tree};

/// The settings of a probe run with trees; none if none are requested.
pub(super) fn settings(args: &ExplainArgs, run: &Settings) -> Result<Option<Settings>> {
    let Some(nodes) = args.decode.lab.tree.filter(|nodes| *nodes > 0) else {
        return Ok(None);
    };
    if !run.drafter.chain().contains(&DrafterKind::Mtp) {
        bail!("only the MTP module drafts trees; leave out --tree or --drafter {}", run.drafter);
    }
    let drafting = Drafting { tree: Some(nodes), ..run.drafting };
    let depth = run.draft_len.clamp(1, LONGEST);
    Ok(Some(Settings { probe_depth: depth, draft_len: 0, drafting, ..*run }))
}

/// Simulates the trees of a probe run. A pass over a tree is assumed to cost as much as one over a chain with the same
/// number of rows.
pub(super) fn played(settings: &Settings, probed: &[(String, Turn)], report: &Report) -> Result<Tree> {
    let recordings = recordings(probed.iter().map(|(_, turn)| turn))?;
    if !recordings.iter().any(|recording| recording.has_tree()) {
        bail!("this model or drafter makes chains, not trees; leave out --tree");
    }
    let depth = settings.probe_depth;
    let counts = all(&recordings, |recording| recording.fixed(depth.into(), 0.0));
    let node_us = per_draft(probed);
    let costs = Costs { draft_us: node_us, ..report.account.costs.clone() };
    let plain = report.simulated[0].tokens_per_second;
    let point = point(Some(depth.into()), counts, &costs, plain);
    Ok(Tree { nodes: settings.drafting.tree.unwrap_or(0), depth, node_us, point })
}

/// Mean time of a draft in a probe run, in microseconds.
pub(super) fn per_draft(probed: &[(String, Turn)]) -> f64 {
    let rounds = probed.iter().flat_map(|(_, turn)| &turn.answer(Lane::Speculative).rounds);
    let probes = rounds.filter_map(|round| round.probed.as_deref());
    let (drafted, took) =
        probes.fold((0u64, 0u64), |(n, us), probe| (n + probe.drafts.len() as u64, us + probe.took_us));
    took as f64 / drafted.max(1) as f64
}
