//! All drafters of a run, one of them (or a chain of them) at work.
//!
//! Invariant: every member is told all that is committed, so that any of them can take over at the next
//! round; those that run a model do so only when they draft. A member that fails is off from then on,
//! with a notice; who asks for one that is not there gets plain decoding and the reason.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::{DraftCtx, Drafter, WEIGHTLESS};
use crate::model::{ModelError, Rows, Tap};
use crate::protocol::{DrafterKind, Settings, TokenId};

/// A drafter, or why there is none.
struct Member {
    kind: DrafterKind,
    drafter: Result<Box<dyn Drafter>, String>,
}

/// Drafters by kind.
pub struct DrafterSet {
    members: Vec<Member>,
    kind: DrafterKind,
    notices: VecDeque<String>,
    /// All states that members read, as they were last configured: what the target hands over.
    tap: Tap,
}

impl Default for DrafterSet {
    /// Those that need nothing but the target.
    fn default() -> Self {
        let mut drafter_set =
            Self { members: Vec::new(), kind: DrafterKind::None, notices: VecDeque::new(), tap: Tap::none() };
        WEIGHTLESS.iter().for_each(|(kind, new)| drafter_set.add(*kind, new()));
        drafter_set
    }
}

impl DrafterSet {
    /// Adds a drafter, in place of one of the same kind.
    pub fn add(&mut self, kind: DrafterKind, drafter: Box<dyn Drafter>) {
        self.put(kind, Ok(drafter));
    }

    /// Notes why a drafter is not there: one sentence with the next step.
    pub fn lack(&mut self, kind: DrafterKind, reason: String) {
        self.put(kind, Err(reason));
    }

    fn put(&mut self, kind: DrafterKind, drafter: Result<Box<dyn Drafter>, String>) {
        self.members.retain(|member| member.kind != kind);
        self.members.push(Member { kind, drafter });
    }

    /// Whether one of the drafters at work is of this kind.
    fn is_at_work(&self, kind: DrafterKind) -> bool {
        self.kind.chain().contains(&kind)
    }

    /// Does something with all members, or with those at work; one that fails is off from then on.
    fn each(&mut self, at_work_only: bool, mut act: impl FnMut(&mut dyn Drafter) -> Result<(), ModelError>) {
        let at_work = self.kind.chain();
        for member in &mut self.members {
            let is_at_work = at_work.contains(&member.kind);
            let Ok(drafter) = &mut member.drafter else {
                continue;
            };
            if at_work_only && !is_at_work {
                continue;
            }
            if let Err(error) = act(drafter.as_mut()) {
                let reason = format!("the drafter {} failed and is off from here on: {error}", member.kind);
                if is_at_work {
                    self.notices.push_back(format!("{reason}; plain decoding goes on"));
                }
                member.drafter = Err(reason);
            }
        }
    }
}

/// The states that a drafter reads, out of those of all.
fn own_states<'a>(drafter: &dyn Drafter, all: &Tap, hidden: &'a Rows) -> Result<Cow<'a, Rows>, ModelError> {
    let own = drafter.tap();
    if own == *all || own.states().is_empty() {
        return Ok(Cow::Borrowed(hidden));
    }
    let picked = own.pick(all, hidden).map(Cow::Owned);
    picked.ok_or_else(|| ModelError::Unsupported("the target hands over other states than this drafter reads".into()))
}

impl Drafter for DrafterSet {
    /// A member that cannot be copied is off in the copy.
    fn fork(&self) -> Result<Box<dyn Drafter>, ModelError> {
        let member = |member: &Member| {
            let drafter = match &member.drafter {
                Ok(drafter) => drafter.fork().map_err(|error| format!("{} cannot be copied: {error}", member.kind)),
                Err(reason) => Err(reason.clone()),
            };
            Member { kind: member.kind, drafter }
        };
        let members = self.members.iter().map(member).collect();
        Ok(Box::new(Self { members, kind: self.kind, notices: VecDeque::new(), tap: self.tap.clone() }))
    }

    fn tap(&self) -> Tap {
        self.tap.clone()
    }

    fn wants_reread(&self) -> bool {
        self.members.iter().any(|member| member.drafter.as_ref().is_ok_and(|drafter| drafter.wants_reread()))
    }

    fn reread(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        let all = self.tap.clone();
        self.each(false, |drafter| match drafter.wants_reread() {
            true => drafter.reread(tokens, own_states(drafter, &all, hidden)?.as_ref()),
            false => Ok(()),
        });
        Ok(())
    }

    fn observe(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        let all = self.tap.clone();
        self.each(false, |drafter| drafter.observe(tokens, own_states(drafter, &all, hidden)?.as_ref()));
        Ok(())
    }

    fn settle(&mut self, committed: &[TokenId]) -> Result<(), ModelError> {
        self.each(true, |drafter| drafter.settle(committed));
        Ok(())
    }

    fn rewind(&mut self, len: usize) -> Result<(), ModelError> {
        self.each(false, |drafter| drafter.rewind(len));
        Ok(())
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        for kind in self.kind.chain() {
            if !ctx.drafts().is_empty() {
                break;
            }
            let work = std::mem::replace(&mut self.kind, *kind);
            self.each(true, |drafter| drafter.draft(ctx));
            self.kind = work;
        }
        Ok(())
    }

    fn offer(&mut self, tokens: &[TokenId]) {
        self.each(true, |drafter| {
            drafter.offer(tokens);
            Ok(())
        });
    }

    fn configure(&mut self, settings: &Settings) {
        let changed = self.kind != settings.drafter;
        self.kind = settings.drafter;
        let lacking = self.members.iter().filter(|member| changed && self.is_at_work(member.kind));
        let reasons: Vec<String> = lacking.filter_map(|member| member.drafter.as_ref().err().cloned()).collect();
        self.notices.extend(reasons);
        self.each(true, |drafter| {
            drafter.configure(settings);
            Ok(())
        });
        self.tap = Tap::none();
        let members = self.members.iter().filter_map(|member| member.drafter.as_ref().ok());
        members.for_each(|drafter| self.tap.join(&drafter.tap()));
    }

    fn notice(&mut self) -> Option<String> {
        let own = self.notices.pop_front();
        own.or_else(|| self.members.iter_mut().find_map(|member| member.drafter.as_mut().ok()?.notice()))
    }
}
