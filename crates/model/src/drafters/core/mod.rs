//! MTP modules of DeepSeek-V3's shape, on every backend: a block of any kind with a KV cache of its own, and the target's
//! embedding and (trimmed) output head.
//!
//! Invariant: every convention that a file does not reveal comes from the [`MtpSpec`](draftscope_protocol::MtpSpec).
//! Files are read in [`mtp`](crate::drafters::mtp) and in the families that bring a module.

mod block;
mod figures;
mod module_file;
mod module_tensors;
mod nextn;
mod on_candle;
mod on_reference;
mod on_target;
mod own;
mod shape;
mod slots;

pub use self::block::MtpBlock;
pub use self::figures::Figures;
pub(crate) use self::figures::{modules, name_of_own};
pub(crate) use self::module_file::{ModuleFile, draft_vocab};
pub(crate) use self::module_tensors::{ModuleTensors, NamedNumbers};
pub(crate) use self::nextn::nextn_plans;
pub(crate) use self::on_reference::reference_modules;
pub(crate) use self::on_target::on_kernels;
pub(crate) use self::own::OwnTensors;
pub use on_candle::{MtpParts, MtpShared};
pub use shape::MtpShape;
