//! Trees in the account: a probe run with a tree at every position, and what it would have done.
//!
//! Invariant: only the tree that was recorded is played; its counts are those of a real run.

use anyhow::{Result, bail};
use draftscope::cli::ExplainArgs;
use draftscope::protocol::{Costs, DrafterKind, Drafting, Lane, Settings};
use draftscope::session::Turn;
use serde::Serialize;

use super::{LONGEST, Point, Report, all, point, recordings};

/// A tree at every position, from a probe run of its own.
#[derive(Serialize)]
pub(super) struct Tree {
    /// Most nodes.
    pub(super) nodes: u8,
    /// k: most drafts in a row.
    pub(super) depth: u8,
    /// Time of a tree ÷ its nodes, in microseconds.
    pub(super) node_us: f64,
    pub(super) point: Point,
}

/// The settings of a probe run with trees, where they are asked for.
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

/// What the trees of a probe run would do. A pass over a tree is taken to cost what one over as many rows
/// of a chain does.
pub(super) fn played(settings: &Settings, probed: &[(String, Turn)], report: &Report) -> Result<Tree> {
    let recordings = recordings(probed.iter().map(|(_, turn)| turn))?;
    if !recordings.iter().any(|recording| recording.has_tree()) {
        bail!("chains were drafted, not trees: this model or drafter makes none; leave out --tree");
    }
    let depth = settings.probe_depth;
    let counts = all(&recordings, |recording| recording.fixed(depth.into(), 0.0));
    let node_us = per_draft(probed);
    let costs = Costs { draft_us: node_us, ..report.account.costs.clone() };
    let plain = report.simulated[0].tokens_per_second;
    let point = point(Some(depth.into()), counts, &costs, plain);
    Ok(Tree { nodes: settings.drafting.tree.unwrap_or(0), depth, node_us, point })
}

/// Time of the drafts of a probe run, each.
pub(super) fn per_draft(probed: &[(String, Turn)]) -> f64 {
    let rounds = probed.iter().flat_map(|(_, turn)| &turn.answer(Lane::Speculative).rounds);
    let (drafted, took) = rounds.fold((0u64, 0u64), |(n, us), r| (n + r.probed.len() as u64, us + r.probe_us));
    took as f64 / drafted.max(1) as f64
}
