//! Drafting with a module that reads the target's keys and values: an assistant.
//!
//! Invariant: it has no slots to settle. It needs only the last observed token and its state. These stay until others
//! are observed, since it may draft again from the same anchor.

use super::MtpDrafter;
use draftscope_model::{Model, ModelError, Rows};
use draftscope_protocol::TokenId;

impl MtpDrafter {
    /// Whether the first module reads the target's cache and has none of its own.
    pub(super) fn shares_target_kv(&self) -> bool {
        self.stages.first().is_some_and(|stage| stage.module.shares_target_kv())
    }

    /// Stores observed tokens and the state of the last one, since no other state is read.
    pub(super) fn note_last(&mut self, tokens: &[TokenId], hidden: &Rows) {
        self.observed.extend_from_slice(tokens);
        if let Some(last) = tokens.len().checked_sub(1) {
            self.states = hidden.slice(last..last + 1);
        }
    }

    /// Attaches the target's KV cache and runs the anchor's slot.
    pub(super) fn attach_kv(&mut self, target: &dyn Model) -> Result<(), ModelError> {
        let Some(end) = self.observed.len().checked_sub(1).filter(|_| !self.states.is_empty()) else {
            return Ok(());
        };
        let tokens = self.tokens(end..end + 1, 0);
        let Some(first) = self.stages.first_mut() else {
            return Ok(());
        };
        first.module.attach_kv(target)?;
        self.head = Some(first.module.forward(&tokens, &self.states)?);
        Ok(())
    }

    /// Removes all observed tokens except the first `len`.
    pub(super) fn forget(&mut self, len: usize) -> Result<(), ModelError> {
        if len < self.observed.len() {
            self.observed.truncate(len);
            self.states.clear(); // the next prompt brings at least one token, and its state
            self.head = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speculate::drafter::Drafter;
    use crate::speculate::drafter::tests::idle;
    use draftscope_model::{DraftModule, Forward};
    use draftscope_protocol::{MtpSpec, Settings, SlotZero};

    /// A module without a cache: its output is 10 · token + state.
    struct SharedKvModule(MtpSpec);

    impl DraftModule for SharedKvModule {
        fn len(&self) -> usize {
            0
        }
        fn spec(&self) -> MtpSpec {
            self.0
        }
        fn shares_target_kv(&self) -> bool {
            true
        }
        fn set_spec(&mut self, spec: &MtpSpec) -> Result<(), ModelError> {
            if spec.slot0 != SlotZero::Plain {
                return Err(ModelError::Unsupported("no slot 0".into()));
            }
            self.0 = *spec;
            Ok(())
        }
        fn forward(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<Forward, ModelError> {
            let outputs: Vec<f32> = tokens.iter().zip(hidden.iter()).map(|(t, h)| 10.0 * t.0 as f32 + h[0]).collect();
            Ok(Forward { logits: Rows::new(vec![0.0; 4], 4), hidden: Rows::new(outputs, 1), stats: Vec::new() })
        }
        fn truncate(&mut self, _: usize) -> Result<(), ModelError> {
            Ok(())
        }
        fn draft_vocab(&self) -> &[TokenId] {
            &[]
        }
        fn fork(&self) -> Result<Box<dyn DraftModule>, ModelError> {
            Ok(Box::new(Self(self.0)))
        }
    }

    fn observing(drafter: &mut MtpDrafter, tokens: std::ops::Range<u32>) {
        let states = Rows::new(tokens.clone().map(|t| t as f32 / 100.0).collect(), 1);
        drafter.observe(&tokens.map(TokenId).collect::<Vec<_>>(), &states).unwrap();
        drafter.settle(&[TokenId(0)]).unwrap();
    }

    #[test]
    fn only_the_last_observed_state_is_kept() {
        let mut drafter = MtpDrafter::new(Box::new(SharedKvModule(MtpSpec::default())));
        let output = |drafter: &mut MtpDrafter| {
            drafter.attach_kv(&idle()).unwrap();
            drafter.head.as_ref().unwrap().hidden.as_slice().to_vec()
        };
        observing(&mut drafter, 1..31);
        for next in [31..32, 32..36, 36..36] {
            observing(&mut drafter, next.clone());
            assert_eq!((drafter.states.len(), drafter.observed.len()), (1, next.end as usize - 1));
            let last = (next.end - 1) as f32;
            assert_eq!(output(&mut drafter), [10.0 * last + last / 100.0]);
            assert_eq!(output(&mut drafter), [10.0 * last + last / 100.0], "and it stays");
        }
        drafter.rewind(20).unwrap();
        assert!(drafter.states.is_empty() && drafter.head.is_none());
        observing(&mut drafter, 50..52);
        assert_eq!((drafter.observed.len(), output(&mut drafter)), (22, vec![510.51]));
    }

    #[test]
    fn a_text_is_read_again_only_for_other_states() {
        let mut drafter = MtpDrafter::new(Box::new(SharedKvModule(MtpSpec::default())));
        observing(&mut drafter, 1..31);
        for (text, rereads) in [
            ("position=constant", false),
            ("order=hidden-first", false),
            ("slot0=extra", false), // refused
            ("feed=pre-norm", true),
            ("feed=pre-norm,position=constant", false),
            ("", true),
        ] {
            let mut settings = Settings::default();
            settings.drafting.mtp = text.parse().unwrap();
            drafter.configure(&settings);
            assert_eq!(drafter.notice().is_some(), text == "slot0=extra", "{text}");
            assert_eq!(drafter.wants_reread(), rereads, "{text}");
            if rereads {
                drafter.reread(&[TokenId(7)], &Rows::new(vec![0.5], 1)).unwrap();
            }
        }
    }
}
