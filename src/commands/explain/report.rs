//! What explain reports, as JSON and for its text.

use std::collections::BTreeMap;

use draftscope::engine::measure::CostCurve;
use draftscope::session::account::Account;
use draftscope::session::classes::ClassTally;
use draftscope::session::probe::RankTally;
use serde::Serialize;

use super::measured::Measured;
use super::points::Point;

/// All measurements and their results.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) cost: CostCurve,
    /// Why nothing is predicted from these times; none if they are possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disturbed: Option<String>,
    /// The formulas with measured costs and the acceptance of the probe run.
    pub(super) account: Account,
    /// Every k, simulated from the probe run.
    pub(super) simulated: Vec<Point>,
    /// The automatic choice of k, simulated round by round.
    pub(super) automatic: Point,
    /// The best k with each value of p-min.
    pub(super) p_min: Vec<Confidence>,
    /// How often the drafter's candidates contained the target's choice, by depth.
    pub(super) ranks: Vec<RankTally>,
    /// First drafts by class of the target's token.
    pub(super) by_class: Vec<ClassTally>,
    pub(super) by_category: BTreeMap<String, InCategory>,
    /// A tree of drafts, simulated; none if none was requested.
    pub(super) tree: Option<Tree>,
    pub(super) measured: Option<Measured>,
}

/// The simulation of a tree at every position, from a separate probe run.
#[derive(Serialize)]
pub(super) struct Tree {
    /// Most nodes of a tree.
    pub(super) nodes: u8,
    /// k: most drafts in one path.
    pub(super) depth: u8,
    /// Time of a tree ÷ its nodes, in microseconds.
    pub(super) node_us: f64,
    pub(super) point: Point,
}

/// The best k, with drafts that end where q is below `p_min`.
#[derive(Serialize)]
pub(super) struct Confidence {
    pub(super) p_min: f32,
    pub(super) drafted: u64,
    pub(super) accepted: u64,
    pub(super) tokens_per_second: Option<f64>,
}

/// One category of the suite.
#[derive(Serialize)]
pub(super) struct InCategory {
    /// First drafts that equal the target's choice ÷ positions.
    pub(super) first_draft: Option<f64>,
    /// The k with the most tokens per second with the measured costs.
    pub(super) best_draft_len: Option<usize>,
    pub(super) tokens_per_round: Option<f64>,
    pub(super) speedup: Option<f64>,
}

impl Report {
    /// Leaves out what would be predicted from times that cannot be.
    pub(super) fn without_predictions(mut self, why: String) -> Self {
        let points = self.simulated.iter_mut().chain([&mut self.automatic]);
        points.for_each(|point| (point.tokens_per_second, point.speedup) = (None, None));
        self.p_min.iter_mut().for_each(|stop| stop.tokens_per_second = None);
        self.by_category.values_mut().for_each(|of| (of.best_draft_len, of.speedup) = (None, None));
        self.account = Account { worths: Vec::new(), best: 0, limit: None, sentence: why.clone(), ..self.account };
        self.disturbed = Some(why);
        self
    }
}
