//! Copies stacked on another drafter: per draft, the source that promises more.
//!
//! Three chances to copy: before the other drafter is asked, if copies alone promise more than its drafts at what they
//! cost; in place of a draft of its own, once its distribution is known; and after its last draft, or earlier if its
//! further drafts are not worth their passes. k limits the other drafter's drafts, copies come on top.

use super::copier::{Beside, Copier, Offer};
use super::{DraftCtx, PassedOver};
use draftscope_protocol::TokenId;
use draftscope_protocol::policy::{DraftProgress, Worth};
use draftscope_protocol::verify::Draft;

impl DraftCtx<'_> {
    /// Begins the round's copying. False if nothing may be drafted.
    pub(super) fn begin_copying(&mut self) -> bool {
        if self.round.draft_len == 0 || self.limit == 0 {
            return false;
        }
        let Some(copier) = self.copier.as_mut() else {
            return false;
        };
        copier.begin(self.committed);
        self.drafts.iter().for_each(|forced| copier.forced(forced.token));
        true
    }

    /// Whether copies alone promise more than what the other drafter may still draft.
    pub(super) fn needs_no_model(&self) -> bool {
        self.copier.as_ref().is_some_and(|copier| {
            let forced = self.drafts.iter().filter(|draft| draft.forced).count();
            let left = self.limit.min(self.round.draft_len).saturating_sub(copier.drafted().saturating_sub(forced));
            copier.needs_no_model(&self.worth(), left, self.most_copied)
        })
    }

    fn worth(&self) -> Worth {
        self.progress.as_ref().map_or_else(Worth::usual, DraftProgress::worth)
    }

    /// A copy in place of a model's draft, whose most probable token is `best` with probability `q`.
    pub(super) fn copy_instead(&mut self, best: TokenId, q: f32) -> Option<Draft> {
        let offer = self.copier.as_mut()?.instead_of(best, q)?;
        let (Beside::Better(Offer { token, .. }) | Beside::Worse(Offer { token, .. })) = offer;
        if self.constrained.is_some() {
            let path = self.path();
            if !self.permits(&path, token) {
                return None;
            }
        }
        let Offer { token, copied, chance } = match offer {
            Beside::Better(copy) => copy,
            Beside::Worse(copy) => {
                self.passed_over.push((self.drafts.len(), PassedOver::Copy(copy)));
                return None;
            }
        };
        self.stops(chance as f32, None).is_none().then(|| {
            if let Some(progress) = &mut self.progress {
                progress.copy(chance);
            }
            Draft::copy(token, copied)
        })
    }

    /// Takes a draft that was proposed; returns whether copies alone should follow it.
    pub(super) fn note_proposed(&mut self, token: TokenId) -> bool {
        if let Some(copier) = &mut self.copier {
            copier.proposed(token);
        }
        self.needs_no_model()
    }

    /// Takes drafts that the grammar forces; returns whether copies alone should follow them.
    pub(super) fn note_forced(&mut self, from: usize) -> bool {
        if let Some(copier) = &mut self.copier {
            self.drafts[from..].iter().for_each(|draft| copier.forced(draft.token));
        }
        self.needs_no_model()
    }

    /// Proposes the copies that are worth their rows, up to `most` drafts in the round.
    pub(super) fn propose_copies(&mut self, most: usize) {
        let (worth, most) = (self.worth(), most.min(self.most_copied));
        let Some(mut copier) = self.copier.take() else {
            return;
        };
        for _ in 0..copier.worthwhile(&worth, most) {
            let Some(copy) = copier.offer().filter(|copy| copy.chance as f32 >= self.drafting.p_min) else {
                break;
            };
            if !self.push_copy(&mut copier, &copy) {
                break;
            }
        }
        self.copier = Some(copier);
    }

    fn push_copy(&mut self, copier: &mut Copier, copy: &Offer) -> bool {
        let (index, draft) = (self.drafts.len(), Draft::copy(copy.token, copy.copied));
        if draft.token.0 >= self.target.spec().info.vocab || !self.permits_draft(&draft, index) {
            return false;
        }
        self.stopped = None; // a copy stands where that token would have stood
        (self.on_draft)(index, &draft);
        self.drafts.push(draft);
        copier.proposed(copy.token);
        self.propose_forced();
        self.drafts[index + 1..].iter().for_each(|forced| copier.forced(forced.token));
        self.drafts.len() < self.most_copied
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{draft, draft_with_stop_rule};
    use super::super::{DraftCtx, Drafter, DrafterSet};
    use draftscope_model::{Forward, ModelError, Rows};
    use draftscope_protocol::policy::Policy;
    use draftscope_protocol::verify::Draft;
    use draftscope_protocol::{Costs, DrafterKind, Sampling, Settings, TokenId};

    /// Drafts the same token again and again, with this weight against 15 others; counts its passes.
    struct Stubborn {
        token: u32,
        logit: f32,
        passes: std::rc::Rc<std::cell::Cell<usize>>,
    }

    impl Drafter for Stubborn {
        fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
            Err(ModelError::Unsupported("never forked".into()))
        }
        fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
            for depth in 0..ctx.limit().min(ctx.round.draft_len) {
                self.passes.set(self.passes.get() + 1);
                let mut logits = vec![0.0; 16];
                logits[self.token as usize] = self.logit;
                let out = Forward { logits: Rows::new(logits, 16), hidden: Rows::default(), stats: Vec::new() };
                let Some(draft) = ctx.pick(&out, None, depth)? else { break };
                if !ctx.propose(draft) {
                    break;
                }
            }
            Ok(())
        }
    }

    fn stacked(token: u32, logit: f32) -> (DrafterSet, std::rc::Rc<std::cell::Cell<usize>>) {
        let passes = std::rc::Rc::default();
        let mut set = DrafterSet::default();
        set.add(DrafterKind::Mtp, Box::new(Stubborn { token, logit, passes: std::rc::Rc::clone(&passes) }));
        set.configure(&settings());
        (set, passes)
    }

    fn settings() -> Settings {
        Settings { drafter: "suffix+mtp".parse().unwrap(), ..Settings::default() }
    }

    fn text(tokens: &[u32]) -> Vec<TokenId> {
        tokens.iter().copied().map(TokenId).collect()
    }

    fn sources(drafts: &[Draft]) -> Vec<(u32, bool)> {
        drafts.iter().map(|draft| (draft.token.0, draft.copied.is_some())).collect()
    }

    #[test]
    fn a_long_match_is_copied_without_a_pass_and_may_exceed_k() {
        let (mut set, passes) = stacked(15, 3.0);
        let line: Vec<u32> = (1..14).chain((1..14).rev()).collect();
        let drafts = draft(&mut set, &text(&[&line[..], &[0], &line[..]].concat()), 2, &settings());
        assert_eq!(passes.get(), 0);
        assert!(drafts.len() > 8 && drafts.iter().all(|draft| draft.copied.is_some()), "{drafts:?}");
        let places: Vec<_> = drafts.iter().map(|draft| draft.copied.unwrap()).collect();
        assert_eq!((places[0].from, places[0].len, places[1].from, places[1].len), (26, 26, 27, 27));
        let (plain, _) =
            draft_with_stop_rule(&mut set, &text(&[&line[..], &[0], &line[..]].concat()), 0, &settings(), None);
        assert!(plain.is_empty(), "k = 0 is plain decoding");
    }

    #[test]
    fn without_a_match_the_model_drafts_as_if_it_were_alone() {
        let (mut set, passes) = stacked(7, 3.0);
        let drafts = draft(&mut set, &text(&[1, 2, 3]), 3, &settings());
        // its own repetition is a match of the drafts with nothing in the text
        assert_eq!((sources(&drafts), passes.get()), (vec![(7, false); 3], 3));
    }

    #[test]
    fn copies_follow_the_models_drafts_and_replace_unlikely_ones() {
        // the model finds the way back into a line that was written before
        let before = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11];
        let (mut set, _) = stacked(3, 6.0);
        let drafts = draft(&mut set, &text(&[&before[..], &[12, 1, 2]].concat()), 1, &settings());
        let sources = sources(&drafts);
        assert_eq!(&sources[..3], &[(3, false), (4, true), (5, true)], "agreed by the model, then copied");
        // a doubtful model that differs from a match of eight tokens; with a free one, copies alone are never enough
        let costs = Costs { verify_us: vec![1000.0; 9], draft_us: 0.0, ..Costs::default() };
        let stop_rule = Policy::new(costs, 4).stop_rule(4);
        let (mut set, passes) = stacked(15, 0.2);
        let line = text(&[&before[..], &[12], &before[..8]].concat());
        let (drafts, _) = draft_with_stop_rule(&mut set, &line, 1, &settings(), Some(stop_rule));
        assert_eq!((drafts[0].token, passes.get()), (TokenId(10), 1));
        assert!(drafts.iter().all(|draft| draft.copied.is_some() && draft.q_prob() == 1.0));
    }

    #[test]
    fn what_is_copied_does_not_depend_on_what_the_model_draws() {
        let line = text(&[1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 1, 2, 3]);
        let mut shapes = std::collections::BTreeSet::new();
        let mut drawn = std::collections::BTreeSet::new();
        for seed in 0..40 {
            let (mut set, _) = stacked(4, 1.5);
            let sampling = Sampling { temperature: 1.0, seed, ..Sampling::default() };
            let drafts = draft(&mut set, &line, 1, &Settings { sampling, ..settings() });
            shapes.insert(drafts[0].copied.is_some());
            drawn.insert(drafts[0].token);
        }
        assert_eq!(shapes.len(), 1, "whether the first draft is a copy follows from the distribution alone");
        assert!(drawn.len() > 3, "{drawn:?}");
    }
}
