//! All drafters of a run; one of them, or several in turn, are active.
//!
//! Invariant: every member observes all committed tokens, so any of them can draft in the next round. Members that run
//! a model do so only when they draft. A member that fails is switched off, with a notice. Of two drafters one may be missing:
//! then the other one drafts alone. Selecting a missing drafter gives plain decoding. In both cases a notice gives the reason.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::copier::Copier;
use super::{DraftCtx, Drafter, OwnToken, WEIGHTLESS};
use draftscope_model::{ModelError, Rows, Tap};
use draftscope_protocol::{DeviceWork, DrafterKind, Settings, TokenId};

/// A drafter, or the reason why it is missing.
struct Member {
    kind: DrafterKind,
    drafter: Result<Box<dyn Drafter>, String>,
}

/// Drafters by kind.
pub struct DrafterSet {
    members: Vec<Member>,
    kind: DrafterKind,
    notices: VecDeque<String>,
    /// All states that the members read, as last configured; the target outputs these.
    tap: Tap,
}

impl Default for DrafterSet {
    /// The drafters that need only the target.
    fn default() -> Self {
        let mut drafter_set =
            Self { members: Vec::new(), kind: DrafterKind::None, notices: VecDeque::new(), tap: Tap::none() };
        WEIGHTLESS.iter().for_each(|(kind, new)| drafter_set.add(*kind, new()));
        drafter_set
    }
}

impl DrafterSet {
    /// Adds a drafter, or replaces the one of the same kind.
    pub fn add(&mut self, kind: DrafterKind, drafter: Box<dyn Drafter>) {
        self.put(kind, Ok(drafter));
    }

    /// Notes why a drafter is missing, and what to do. A notice says what that leaves.
    pub fn set_missing(&mut self, kind: DrafterKind, reason: String) {
        self.put(kind, Err(reason));
    }

    fn put(&mut self, kind: DrafterKind, drafter: Result<Box<dyn Drafter>, String>) {
        self.members.retain(|member| member.kind != kind);
        self.members.push(Member { kind, drafter });
    }

    /// Whether a drafter of this kind is there.
    fn is_there(&self, kind: DrafterKind) -> bool {
        self.members.iter().any(|member| member.kind == kind && member.drafter.is_ok())
    }

    /// What the missing one of the active drafters leaves, for a notice.
    fn what_is_left(&self) -> Option<&'static str> {
        let left = self.kind.chain().iter().find(|kind| self.is_there(**kind))?;
        Some(match left {
            DrafterKind::Suffix => "only copies of repeated text are drafted",
            DrafterKind::Ngram => "only n-gram lookup drafts",
            _ => "only the other drafter drafts",
        })
    }

    /// Why an active drafter is missing, and what that leaves.
    fn why_missing(&self) -> Option<String> {
        let is_active = |member: &&Member| self.kind.chain().contains(&member.kind);
        let missing = self.members.iter().filter(is_active).find_map(|member| {
            let reason = member.drafter.as_ref().err()?;
            Some((member.kind, reason))
        });
        let (kind, reason) = missing?;
        Some(match (self.what_is_left(), kind) {
            (None, _) => format!("no drafter, decoding plainly: {reason}"),
            (Some(left), DrafterKind::Mtp) => format!("no draft module, {left}: {reason}"),
            (Some(left), DrafterKind::DraftModel) => format!("no draft model, {left}: {reason}"),
            (Some(left), _) => format!("{left}: {reason}"),
        })
    }

    /// Asks one member for drafts.
    fn draft_with(&mut self, kind: DrafterKind, ctx: &mut DraftCtx<'_>) {
        self.each_of(kind.chain(), |drafter| drafter.draft(ctx));
    }

    /// What copies the text.
    fn copier(&mut self) -> Option<&mut Copier> {
        self.members.iter_mut().find_map(|member| member.drafter.as_mut().ok()?.copier())
    }

    /// Drafts with copies and with another member. A tree has no copies, unless copies alone promise more.
    fn draft_stacked(&mut self, other: DrafterKind, ctx: &mut DraftCtx<'_>) {
        ctx.copier = self.copier().map(std::mem::take);
        if ctx.begin_copying() {
            let is_tree = ctx.drafting.tree.is_some();
            let is_alone = ctx.needs_no_model();
            let unused = ctx.copier.take_if(|_| is_tree && !is_alone);
            if !is_alone {
                self.draft_with(other, ctx);
            }
            ctx.propose_copies(usize::MAX);
            ctx.copier = ctx.copier.take().or(unused);
        }
        if let (Some(used), Some(copier)) = (ctx.copier.take(), self.copier()) {
            *copier = used;
        }
    }

    /// Calls `act` for all members; one that fails is switched off.
    fn each(&mut self, act: impl FnMut(&mut dyn Drafter) -> Result<(), ModelError>) {
        let all: Vec<DrafterKind> = self.members.iter().map(|member| member.kind).collect();
        self.each_of(&all, act);
    }

    /// The same for the active ones.
    fn each_active(&mut self, act: impl FnMut(&mut dyn Drafter) -> Result<(), ModelError>) {
        self.each_of(self.kind.chain(), act);
    }

    fn each_of(&mut self, kinds: &[DrafterKind], mut act: impl FnMut(&mut dyn Drafter) -> Result<(), ModelError>) {
        let (active, mut failed) = (self.kind.chain(), Vec::new());
        for member in self.members.iter_mut().filter(|member| kinds.contains(&member.kind)) {
            let Ok(drafter) = &mut member.drafter else {
                continue;
            };
            if let Err(error) = act(drafter.as_mut()) {
                let reason = format!("the drafter {} failed and is switched off: {error}", member.kind);
                failed.extend(active.contains(&member.kind).then(|| reason.clone()));
                member.drafter = Err(reason);
            }
        }
        for reason in failed {
            let left = self.what_is_left().unwrap_or("decoding continues without drafts");
            self.notices.push_back(format!("{reason}; {left}"));
        }
    }
}

/// The states that a drafter reads, selected from those of all drafters.
fn own_states<'a>(drafter: &dyn Drafter, all: &Tap, hidden: &'a Rows) -> Result<Cow<'a, Rows>, ModelError> {
    let own = drafter.tap();
    if own == *all || own.states().is_empty() {
        return Ok(Cow::Borrowed(hidden));
    }
    let picked = own.pick(all, hidden).map(Cow::Owned);
    picked
        .ok_or_else(|| ModelError::Unsupported("the target does not output the states that this drafter reads".into()))
}

impl Drafter for DrafterSet {
    /// A member that cannot be copied is switched off in the copy.
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

    fn usable(&self, asked: DrafterKind) -> DrafterKind {
        match asked.chain() {
            [first, second] if !self.is_there(*second) && self.is_there(*first) => *first,
            [first, second] if !self.is_there(*first) && self.is_there(*second) => *second,
            _ => asked,
        }
    }

    /// Copies beside a drafter can be any token of the text; alone they have no vocabulary.
    fn has_token(&self, own: OwnToken<'_>) -> Option<bool> {
        let active = self.usable(self.kind).chain();
        let copies = |kind: &DrafterKind| matches!(kind, DrafterKind::Suffix | DrafterKind::Ngram);
        let drafters = self.members.iter().filter(|member| active.contains(&member.kind) && !copies(&member.kind));
        let known: Option<Vec<bool>> = drafters.map(|member| member.drafter.as_ref().ok()?.has_token(own)).collect();
        let known = known.filter(|known| !known.is_empty())?;
        Some(known.contains(&true) || (active.iter().any(copies) && own.text.contains(&own.token)))
    }

    fn device_work(&self) -> Option<DeviceWork> {
        let drafters = self.members.iter().filter_map(|member| member.drafter.as_ref().ok());
        drafters.filter_map(|drafter| drafter.device_work()).reduce(DeviceWork::and)
    }

    fn tap(&self) -> Tap {
        self.tap.clone()
    }

    fn wants_reread(&self) -> bool {
        self.members.iter().any(|member| member.drafter.as_ref().is_ok_and(|drafter| drafter.wants_reread()))
    }

    fn reread(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        let all = self.tap.clone();
        self.each(|drafter| match drafter.wants_reread() {
            true => drafter.reread(tokens, own_states(drafter, &all, hidden)?.as_ref()),
            false => Ok(()),
        });
        Ok(())
    }

    fn observe(&mut self, tokens: &[TokenId], hidden: &Rows) -> Result<(), ModelError> {
        let all = self.tap.clone();
        self.each(|drafter| drafter.observe(tokens, own_states(drafter, &all, hidden)?.as_ref()));
        Ok(())
    }

    fn settle(&mut self, committed: &[TokenId]) -> Result<(), ModelError> {
        self.each_active(|drafter| drafter.settle(committed));
        Ok(())
    }

    fn rewind(&mut self, len: usize) -> Result<(), ModelError> {
        self.each(|drafter| drafter.rewind(len));
        Ok(())
    }

    fn draft(&mut self, ctx: &mut DraftCtx<'_>) -> Result<(), ModelError> {
        if let [DrafterKind::Suffix, other] = self.kind.chain() {
            self.draft_stacked(*other, ctx);
            return Ok(());
        }
        let forced = ctx.drafts().len();
        for kind in self.kind.chain() {
            if ctx.drafts().len() > forced {
                break;
            }
            self.draft_with(*kind, ctx);
        }
        Ok(())
    }

    fn offer(&mut self, tokens: &[TokenId]) {
        self.each_active(|drafter| {
            drafter.offer(tokens);
            Ok(())
        });
    }

    fn configure(&mut self, settings: &Settings) {
        let changed = self.kind != settings.drafter;
        self.kind = settings.drafter;
        if changed {
            let why = self.why_missing();
            self.notices.extend(why);
        }
        self.each_active(|drafter| {
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
